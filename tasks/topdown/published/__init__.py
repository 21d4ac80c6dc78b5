"""Noisy measurements in the published layout: read with every check and streamed into a run, and
written from one."""
