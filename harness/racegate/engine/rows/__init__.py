"""The persistent batch and the runner: who stands in which row, what the host tells the device
about a step, how counts come from one step to the next, and the steps of `Runner.execute`.

Change here row moves, input preparation, the correction, and where accepted counts land. Rows move
while results are in flight: whatever crosses a step is moved with its row, or reached through
`PrevStep`. It must not know why requests are scheduled, nor the inside of the rooms below.
"""
