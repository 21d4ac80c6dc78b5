"""What is expected of one population, told to the independent checks, and how far persons and
households agree.
"""
