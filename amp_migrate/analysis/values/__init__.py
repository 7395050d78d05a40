"""What value is it: dtype with AMP off and on, precision, numbers, devices."""
