"""A toy runner: requests in persistent rows, an accepted count copied to the host, condense.

What would be CUDA in a real runner goes through `device`: begin, wait, read, move, copy.
"""


def token(request, place):
    """The token that the toy's model gives a request at a place of its output."""
    return (31 * request["prompt"][0] + 7 * place) % 97


class Runner:
    """Runs requests to their end, with some accepted tokens for each in every step."""

    def __init__(self, requests, device):
        self.device = device
        self.waiting = list(requests)
        self.rows = []  # the request in each row; None is a hole
        self.verified = {r["name"]: 0 for r in requests}  # tokens so far, on the device
        self.sampled = {}  # the last step's tokens, -1 behind the accepted ones
        self.count = {}  # how many of them the host has accepted
        self.tokens = {r["name"]: [] for r in requests}  # delivered

    def step(self, step):
        """One iteration. Returns whether there is more to do."""
        self.device.wait("count-landed", "count")
        self.device.begin(f"condense@{step}")
        while None in self.rows:  # the last row moves into the first hole
            hole, request = self.rows.index(None), self.rows.pop()
            if hole < len(self.rows):
                self.device.move("count", len(self.rows), hole)
                self.rows[hole] = request
        self.device.begin(f"take@{step}")
        for row, request in enumerate(self.rows):
            self.take(row, request, step)
        self.rows += [r for r in self.waiting if r["arrive"] <= step]
        self.waiting = [r for r in self.waiting if r["arrive"] > step]
        self.launch(step)
        return bool(self.waiting or any(self.rows))

    def take(self, row, request, step):
        """The host learns how many tokens a row accepted. Who is done leaves a hole."""
        name, most = request["name"], request["max_tokens"]
        self.count[name] = self.device.read("count", row, owner=(name, step - 1))
        self.tokens[name] = (self.tokens[name] + self.sampled[name][: self.count[name]])[:most]
        if len(self.tokens[name]) == most:
            self.rows[row] = None

    def launch(self, step):
        """The device accepts tokens, and a copy takes the counts to the host, in its own time."""
        counts = {}
        for row, request in enumerate(self.rows):
            if request:
                name, accepts = request["name"], request["accepts"]
                first, count = self.verified[name], accepts[step % len(accepts)]
                self.sampled[name] = [token(request, first + i) for i in range(count)] + [-1] * 8
                self.verified[name] = first + count
                counts[row] = (count, (name, step))
        self.device.copy("count", counts, step)
