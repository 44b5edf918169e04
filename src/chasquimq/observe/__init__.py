"""Who hears what happened: sinks behind one `announce`."""
