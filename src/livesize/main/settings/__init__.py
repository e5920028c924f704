"""Every setting of a process: its table, options, config file; and where its data lies."""
