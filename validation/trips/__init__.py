"""Rules on the input of the trips flow, and checks of a finished run."""
