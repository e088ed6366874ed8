"""Library routines that wear the Kernel interface, one leaf file each (table: ``device/library.py``)."""
