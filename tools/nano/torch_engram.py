"""Engram table rows of whole sequences (spec/model.md section 5.3), vectorised with NumPy."""

import os
import sys

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
from engram import DEAD, hash_multipliers, table_primes  # noqa: E402  (tools/reference)


class EngramRows:
    """Rows of every position; depends on token ids only."""

    def __init__(self, text, token_map):
        self._token_map = np.asarray(token_map, np.int64)
        self._pad = self._token_map[text.engram_pad_token_id]
        self._primes = table_primes(text)
        self._multipliers = [hash_multipliers(layer, text.engram_compressed_vocab_size,
                                              text.engram_max_ngram_size)
                             for layer in text.engram_layer_ids]

    def rows(self, ids, is_image):
        """ids [N], is_image bool [N] -> int64 [N, tables, columns]."""
        compressed = np.where(is_image, DEAD, self._token_map[ids])
        looked_up = self._look_back(compressed)
        return np.stack([self._table(looked_up, table) for table in range(len(self._primes))], 1)

    def _look_back(self, compressed):
        """[N, orders]: the ids 0, 1, 2, ... positions back; the pad once something blocks the way."""
        columns, blocked = [], np.zeros(len(compressed), bool)
        for distance in range(len(self._multipliers[0])):
            source = np.full(len(compressed), DEAD)
            source[distance:] = compressed[:len(compressed) - distance]
            blocked = blocked | (source == DEAD)
            columns.append(np.where(blocked, self._pad, source))
        return np.stack(columns, 1)

    def _table(self, looked_up, table):
        mixed, offset, columns = np.zeros(len(looked_up), np.int64), 0, []
        for distance, multiplier in enumerate(self._multipliers[table]):
            mixed = mixed ^ (looked_up[:, distance] * np.int64(multiplier))
            for prime in self._primes[table][distance - 1] if distance else ():
                columns.append(offset + mixed % prime)
                offset += prime
        return np.stack(columns, 1)
