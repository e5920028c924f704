"""The simulator: the real cluster on virtual time, with faults drawn from a seed.

The API service, scheduler, controllers and agents are the ones that production runs. The store,
the machines and the guests are in memory, and the event loop owns time. One seed gives one trace,
byte for byte. Checkers observe from outside; a failed check names the command that repeats it.
"""
