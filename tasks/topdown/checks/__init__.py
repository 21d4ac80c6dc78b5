"""The steps that run the checks of `validation`."""
