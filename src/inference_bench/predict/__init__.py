"""What to expect: bounds composed into answers, with every assumption stated."""
