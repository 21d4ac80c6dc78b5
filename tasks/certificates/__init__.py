"""The certificate of every release: one frame, to which each product gives its facts."""
