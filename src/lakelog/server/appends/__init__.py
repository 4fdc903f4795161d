"""What a batch may need besides the append itself: a walk, a verification, an acknowledgement.

Start with `slow_batches`, which checks batches that take too long for one turn of the loop. The
append is the partition's (`lakelog.replica.partition`); who asks for it is `handlers.produce`.
"""
