"""What doctor knows: facts in, findings out. Pure; one file per subject."""
