"""The protocol, pure: immutable state and an event in, the next state or an error out. No store, no clock, no
random.
"""
