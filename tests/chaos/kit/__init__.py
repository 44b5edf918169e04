"""The chaos kit: break things for real, write down what happened, judge it afterwards."""
