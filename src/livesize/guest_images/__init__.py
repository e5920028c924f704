"""Guest images: a kernel and an initial file system that QEMU boots, made without root."""
