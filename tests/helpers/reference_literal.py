"""DEFINITION sections 1 and 2 once more, in plain Python numbers and loops.

Lists instead of arrays, `% 2**32` instead of uint32: what NumPy does implicitly is explicit here.
"""

from __future__ import annotations

import math
from typing import Any

from racegate.scenario.settings import LayerKind, ModelPart, ModelSpec, Numerics, StateLife

Vector = list[Any]
MODULUS = 2**32


def mix(x: int) -> int:
    x ^= x >> 16
    x = x * 0x7FEB352D % MODULUS
    x ^= x >> 15
    x = x * 0x846CA68B % MODULUS
    return x ^ (x >> 16)


def fnv(text: str) -> int:
    h = 0x811C9DC5
    for byte in text.encode():
        h = (h ^ byte) * 0x01000193 % MODULUS
    return h


def bits(seed: int, name: str, i: int) -> int:
    return mix((mix(mix(seed) ^ fnv(name)) + i * 0x9E3779B9) % MODULUS)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


class Literal:
    """A model of one spec; `state`, `conv` and `kv` hold the layers' values after a run."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.exact = spec.numerics is Numerics.EXACT
        self.state: dict[int, Any] = {}
        self.conv: dict[int, Any] = {}
        self.kv: dict[int, Any] = {}

    def wrap(self, x: Any) -> Any:
        return x % MODULUS if self.exact else x

    def weight(self, name: str, r: int, c: int, columns: int, fan_in: int | None = None) -> Any:
        word = bits(self.spec.seed, name, r * columns + c)
        if self.exact:
            return word
        return (word / 2**31 - 1) * math.sqrt(3 / (fan_in or columns))

    def matvec(self, name: str, rows: int, x: Vector) -> Vector:
        size = len(x)
        return [
            self.wrap(sum(self.weight(name, r, c, size) * x[c] for c in range(size)))
            for r in range(rows)
        ]

    def projected(self, index: int, name: str, rows: int, x: Vector) -> Vector:
        return self.biased(index, name, self.matvec(f"layer.{index}.{name}_proj", rows, x))

    def biased(self, index: int, name: str, x: Vector) -> Vector:
        if ModelPart.BIASES not in self.spec.parts:
            return x
        bias = f"layer.{index}.{name}_bias"
        return [self.wrap(value + self.weight(bias, i, 0, 1, 12)) for i, value in enumerate(x)]

    def weighted(self, part: ModelPart, name: str, x: Vector) -> Vector:
        """What a norm made, times its weight if the model has that part."""
        if part not in self.spec.parts:
            return x
        own = [self.weight(name, i, 0, 1, 12) for i in range(len(x))]
        own = [word | 1 if self.exact else 1 + word for word in own]
        return [self.wrap(value * weight) for value, weight in zip(x, own, strict=True)]

    def normed(self, name: str, x: Vector) -> Vector:
        return self.weighted(ModelPart.NORM_WEIGHTS, name, self.norm(x))

    def norm(self, x: Vector) -> Vector:
        if self.exact:
            return [mix(value) for value in x]
        scale = math.sqrt(sum(value**2 for value in x) / len(x) + 1e-6)
        return [value / scale for value in x]

    def act(self, x: Any) -> Any:
        return mix(x) if self.exact else x * sigmoid(x)

    def gate(self, y: Vector, z: Vector) -> Vector:
        if self.exact:
            return [mix((a + mix(b)) % MODULUS) for a, b in zip(y, z, strict=True)]
        return [a * b * sigmoid(b) for a, b in zip(y, z, strict=True)]

    def run(self, tokens: list[int]) -> tuple[list[Vector], list[Vector]]:
        """The hidden states and the logits of all tokens."""
        spec = self.spec
        width = spec.hidden_size
        h = [[self.weight("embed", t, c, width, 1) for c in range(width)] for t in tokens]
        for index, kind in enumerate(spec.layers):
            layer = {
                LayerKind.MAMBA2: self.mamba2,
                LayerKind.GATED_DELTA: self.gated_delta,
                LayerKind.ATTENTION: self.attention,
            }[kind]
            h = self.added(h, layer(index, [self.normed(f"layer.{index}.norm", x) for x in h]))
            if spec.mlp_size:
                h = self.added(h, [self.mlp(index, x) for x in h])
        ends = [self.normed("final_norm", x) for x in h]
        return h, [self.matvec("lm_head", spec.vocab_size, x) for x in ends]

    def added(self, h: list[Vector], f: list[Vector]) -> list[Vector]:
        return [
            [self.wrap(a + b) for a, b in zip(x, y, strict=True)] for x, y in zip(h, f, strict=True)
        ]

    def mlp(self, index: int, h: Vector) -> Vector:
        size, name = self.spec.mlp_size, f"layer.{index}.mlp"
        inner = self.matvec(f"{name}_in", 2 * size, self.normed(f"{name}_norm", h))
        return self.matvec(f"{name}_out", len(h), self.gate(inner[size:], inner[:size]))

    def convolve(self, index: int, raw: list[Vector]) -> list[Vector]:
        width, channels = self.spec.conv_width, len(raw[0])
        padded = [[0] * channels] * (width - 1) + raw
        self.conv[index] = [
            [padded[len(raw) + t][ch] for t in range(width - 1)] for ch in range(channels)
        ]
        name = f"layer.{index}.conv"
        taps = [[self.weight(name, ch, t, width) for t in range(width)] for ch in range(channels)]
        sums = [
            [
                self.wrap(sum(taps[ch][t] * padded[n + t][ch] for t in range(width)))
                for ch in range(channels)
            ]
            for n in range(len(raw))
        ]
        return [[self.act(x) for x in self.biased(index, "conv", row)] for row in sums]

    def head_weight(self, index: int, name: str, head: int) -> Any:
        value = self.weight(f"layer.{index}.{name}", head, 0, 1, 3)
        is_slowed = name == "dt_bias" and self.spec.state_life is StateLife.LONG
        return value - 6 if is_slowed and not self.exact else value

    def mamba2(self, index: int, xs: list[Vector]) -> list[Vector]:
        s = self.spec
        hp, gn, n_range = s.heads * s.head_size, s.groups * s.state_size, range(s.state_size)
        u = [self.projected(index, "in", 2 * hp + 2 * gn + s.heads, x) for x in xs]
        mixed = self.convolve(index, [row[hp : 2 * hp + 2 * gn] for row in u])
        state = [[[0] * s.state_size for _ in range(s.head_size)] for _ in range(s.heads)]
        out = []
        for row, values in zip(u, mixed, strict=True):
            y = []
            for h in range(s.heads):
                group = h // (s.heads // s.groups)
                b = values[hp + group * s.state_size :][: s.state_size]
                c = values[hp + gn + group * s.state_size :][: s.state_size]
                dt = self.wrap(row[-s.heads + h] + self.head_weight(index, "dt_bias", h))
                if self.exact:
                    a, t = mix(dt) | 1, 1
                else:
                    t = math.log(1 + math.exp(dt))
                    a = math.exp(-t * math.exp(self.head_weight(index, "a_log", h)))
                for p in range(s.head_size):
                    x = values[h * s.head_size + p]
                    for n in n_range:
                        state[h][p][n] = self.wrap(a * state[h][p][n] + t * x * b[n])
                    skipped = self.head_weight(index, "skip", h) * x
                    y.append(self.wrap(sum(state[h][p][n] * c[n] for n in n_range) + skipped))
            o = self.gate(y, row[:hp])
            if ModelPart.GATED_NORM in s.parts:
                size = hp // s.groups
                o = [x for g in range(s.groups) for x in self.norm(o[g * size : (g + 1) * size])]
                o = self.weighted(ModelPart.GATED_NORM, f"layer.{index}.gated_norm", o)
            out.append(self.projected(index, "out", s.hidden_size, o))
        self.state[index] = state
        return out

    def gated_delta(self, index: int, xs: list[Vector]) -> list[Vector]:
        s = self.spec
        keys, hp, n_range = s.key_head_count, s.heads * s.head_size, range(s.state_size)
        qn = keys * s.state_size
        u = [self.projected(index, "in", 2 * qn + 2 * hp + 2 * s.heads, x) for x in xs]
        mixed = self.convolve(index, [row[: 2 * qn + hp] for row in u])
        state = [[[0] * s.state_size for _ in range(s.head_size)] for _ in range(s.heads)]
        out = []
        for row, values in zip(u, mixed, strict=True):
            y: Vector = []
            for h in range(s.heads):
                key = h // (s.heads // keys)
                q = values[key * s.state_size : (key + 1) * s.state_size]
                k = values[qn + key * s.state_size : qn + (key + 1) * s.state_size]
                v = values[2 * qn + h * s.head_size : 2 * qn + (h + 1) * s.head_size]
                b = row[2 * qn + 2 * hp + h]
                g = row[2 * qn + 2 * hp + s.heads + h] + self.head_weight(index, "dt_bias", h)
                if self.exact:
                    a, beta = mix(g % MODULUS) | 1, 2 * mix(b) % MODULUS
                else:
                    rate = math.exp(self.head_weight(index, "a_log", h))
                    a, beta = math.exp(-rate * math.log(1 + math.exp(g))), sigmoid(b)
                    q_len = math.sqrt(sum(value**2 for value in q) + 1e-6)
                    k_len = math.sqrt(sum(value**2 for value in k) + 1e-6)
                    q = [value / q_len / math.sqrt(s.state_size) for value in q]
                    k = [value / k_len for value in k]
                o = []
                for p in range(s.head_size):
                    recalled = sum(state[h][p][n] * k[n] for n in n_range)
                    state[h][p] = [
                        self.wrap(
                            a * (state[h][p][n] - beta * recalled * k[n]) + beta * v[p] * k[n]
                        )
                        for n in n_range
                    ]
                    o.append(self.wrap(sum(state[h][p][n] * q[n] for n in n_range)))
                o = o if self.exact else self.norm(o)
                y += self.weighted(ModelPart.NORM_WEIGHTS, f"layer.{index}.head_norm", o)
            z = row[2 * qn + hp : 2 * qn + 2 * hp]
            out.append(self.projected(index, "out", s.hidden_size, self.gate(y, z)))
        self.state[index] = state
        return out

    def rot(self, x: Vector, position: int) -> Vector:
        """The first elements turn, the others stay."""
        turning = self.spec.rotary_width
        if self.exact:
            turned = [mix((value + position * 0x85EBCA6B) % MODULUS) for value in x[:turning]]
            return turned + x[turning:]
        out: Vector = []
        for j in range(turning // 2):
            angle = position * 10000 ** (-2 * j / turning)
            x0, x1 = x[2 * j], x[2 * j + 1]
            out.append(x0 * math.cos(angle) - x1 * math.sin(angle))
            out.append(x0 * math.sin(angle) + x1 * math.cos(angle))
        return out + x[turning:]

    def head_of(self, index: int, name: str, x: Vector, position: int) -> Vector:
        """A query's or a key's head, as it is compared."""
        if ModelPart.QK_NORM in self.spec.parts:
            name = f"layer.{index}.{name}_norm"
            x = self.weighted(ModelPart.QK_NORM, name, self.norm(x))
        return self.rot(x, position)

    def attention(self, index: int, xs: list[Vector]) -> list[Vector]:
        s, size, keys = self.spec, self.spec.head_size, self.spec.kv_head_count
        gates = s.heads if ModelPart.OUTPUT_GATE in s.parts else 0
        kv: list[Vector] = []
        out = []
        for position, x in enumerate(xs):
            qkv = self.projected(index, "qkv", (s.heads + 2 * keys + gates) * size, x)
            heads = [qkv[i * size : (i + 1) * size] for i in range(len(qkv) // size)]
            entry = [self.head_of(index, "k", k, position) for k in heads[s.heads :][:keys]]
            entry += heads[s.heads + keys :][:keys]
            kv.append([value for head in entry for value in head])
            o: Vector = []
            for h in range(s.heads):
                q = self.head_of(index, "q", heads[h], position)
                o += self.attended(q, kv, h // (s.heads // keys))
            o = self.gated(o, [value for head in heads[s.heads + 2 * keys :] for value in head])
            out.append(self.projected(index, "out", s.hidden_size, o))
        self.kv[index] = kv
        return out

    def attended(self, q: Vector, kv: list[Vector], head: int) -> Vector:
        """One query over all entries. head: of keys and values"""
        size, keys = len(q), self.spec.kv_head_count
        scores = [
            sum(a * b for a, b in zip(q, entry[head * size :][:size], strict=True)) for entry in kv
        ]
        if not self.exact:
            powers = [math.exp(score / math.sqrt(size)) for score in scores]
            scores = [power / sum(powers) for power in powers]
        columns = ([entry[(keys + head) * size + p] for entry in kv] for p in range(size))
        return [
            self.wrap(sum(w * v for w, v in zip(scores, column, strict=True))) for column in columns
        ]

    def gated(self, o: Vector, z: Vector) -> Vector:
        """What attention's output projection is applied to."""
        if not z:
            return [mix(value) for value in o] if self.exact else o
        if self.exact:
            return self.gate(o, z)
        return [a * sigmoid(b) for a, b in zip(o, z, strict=True)]
