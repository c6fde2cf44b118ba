"""DEFINITION sections 1 and 2 once more, in plain Python numbers and loops.

Lists instead of arrays, `% 2**32` instead of uint32: what NumPy does implicitly is explicit here.
"""

from __future__ import annotations

import math
from typing import Any

from racegate.scenario.spec import LayerKind, ModelSpec, Numerics

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
            f = layer(index, [self.norm(x) for x in h])
            h = [
                [self.wrap(a + b) for a, b in zip(x, y, strict=True)]
                for x, y in zip(h, f, strict=True)
            ]
        return h, [self.matvec("lm_head", spec.vocab_size, self.norm(x)) for x in h]

    def convolve(self, index: int, raw: list[Vector]) -> list[Vector]:
        width, channels = self.spec.conv_width, len(raw[0])
        padded = [[0] * channels] * (width - 1) + raw
        self.conv[index] = [
            [padded[len(raw) + t][ch] for t in range(width - 1)] for ch in range(channels)
        ]
        name = f"layer.{index}.conv"
        taps = [[self.weight(name, ch, t, width) for t in range(width)] for ch in range(channels)]
        return [
            [
                self.act(self.wrap(sum(taps[ch][t] * padded[n + t][ch] for t in range(width))))
                for ch in range(channels)
            ]
            for n in range(len(raw))
        ]

    def head_weight(self, index: int, name: str, head: int) -> Any:
        return self.weight(f"layer.{index}.{name}", head, 0, 1, 3)

    def mamba2(self, index: int, xs: list[Vector]) -> list[Vector]:
        s = self.spec
        hp, n_range = s.heads * s.head_size, range(s.state_size)
        size = 2 * hp + 2 * s.state_size + s.heads
        u = [self.matvec(f"layer.{index}.in_proj", size, x) for x in xs]
        mixed = self.convolve(index, [row[hp : 2 * hp + 2 * s.state_size] for row in u])
        state = [[[0] * s.state_size for _ in range(s.head_size)] for _ in range(s.heads)]
        out = []
        for row, values in zip(u, mixed, strict=True):
            b, c = values[hp : hp + s.state_size], values[hp + s.state_size :]
            y = []
            for h in range(s.heads):
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
            out.append(
                self.matvec(f"layer.{index}.out_proj", s.hidden_size, self.gate(y, row[:hp]))
            )
        self.state[index] = state
        return out

    def gated_delta(self, index: int, xs: list[Vector]) -> list[Vector]:
        s = self.spec
        hp, hn, n_range = s.heads * s.head_size, s.heads * s.state_size, range(s.state_size)
        size = 2 * hn + 2 * hp + 2 * s.heads
        u = [self.matvec(f"layer.{index}.in_proj", size, x) for x in xs]
        mixed = self.convolve(index, [row[: 2 * hn + hp] for row in u])
        state = [[[0] * s.state_size for _ in range(s.head_size)] for _ in range(s.heads)]
        out = []
        for row, values in zip(u, mixed, strict=True):
            y: Vector = []
            for h in range(s.heads):
                q = values[h * s.state_size : (h + 1) * s.state_size]
                k = values[hn + h * s.state_size : hn + (h + 1) * s.state_size]
                v = values[2 * hn + h * s.head_size : 2 * hn + (h + 1) * s.head_size]
                b = row[2 * hn + 2 * hp + h]
                g = row[2 * hn + 2 * hp + s.heads + h] + self.head_weight(index, "dt_bias", h)
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
                y += o if self.exact else self.norm(o)
            z = row[2 * hn + hp : 2 * hn + 2 * hp]
            out.append(self.matvec(f"layer.{index}.out_proj", s.hidden_size, self.gate(y, z)))
        self.state[index] = state
        return out

    def rot(self, x: Vector, position: int) -> Vector:
        if self.exact:
            return [mix((value + position * 0x85EBCA6B) % MODULUS) for value in x]
        out: Vector = []
        for j in range(len(x) // 2):
            angle = position * 10000 ** (-2 * j / len(x))
            x0, x1 = x[2 * j], x[2 * j + 1]
            out.append(x0 * math.cos(angle) - x1 * math.sin(angle))
            out.append(x0 * math.sin(angle) + x1 * math.cos(angle))
        return out

    def attention(self, index: int, xs: list[Vector]) -> list[Vector]:
        s = self.spec
        size, hp = s.head_size, s.heads * s.head_size
        kv: list[Vector] = []
        out = []
        for position, x in enumerate(xs):
            qkv = self.matvec(f"layer.{index}.qkv_proj", 3 * hp, x)
            heads = [qkv[i * size : (i + 1) * size] for i in range(3 * s.heads)]
            keys = [self.rot(k, position) for k in heads[s.heads : 2 * s.heads]]
            kv.append([value for head in keys + heads[2 * s.heads :] for value in head])
            o: Vector = []
            for h in range(s.heads):
                q = self.rot(heads[h], position)
                scores = [
                    sum(a * b for a, b in zip(q, entry[h * size : (h + 1) * size], strict=True))
                    for entry in kv
                ]
                if not self.exact:
                    powers = [math.exp(score / math.sqrt(size)) for score in scores]
                    scores = [power / sum(powers) for power in powers]
                for p in range(size):
                    column = [entry[hp + h * size + p] for entry in kv]
                    value = self.wrap(sum(w * v for w, v in zip(scores, column, strict=True)))
                    o.append(mix(value) if self.exact else value)
            out.append(self.matvec(f"layer.{index}.out_proj", s.hidden_size, o))
        self.kv[index] = kv
        return out
