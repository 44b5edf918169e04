"""The lake: what happened to jobs, kept as Parquet for as long as somebody wants it.

<lake>/events/queue=<queue>/date=<day>/batch=<batch>/*.parquet      `layout.py`
<lake>/dlq/...                                                      dead jobs, as they died
<lake>/_checkpoints/<table>                                         how far each table is
<lake>/_staging/...                                                 what is not part of it yet
"""
