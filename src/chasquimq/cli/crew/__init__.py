"""`chasqui worker`: a supervisor, and the processes in which it runs Workers.

supervisor.py   which processes there shall be, and what follows when one ends
member.py       one process, as its supervisor sees it
message.py      what the two tell each other, over a socket pair
words.py        what a process writes to stderr; outlet.py is the supervisor's own
child.py        the process itself; target.py finds the Workers it shall run
"""
