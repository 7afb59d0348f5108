"""Optimisers: orthogonalised momentum (Muon) for hidden matrices, Adam for the rest."""

import torch

NEWTON_SCHULZ = ((3.4445, -4.7750, 2.0315),) * 5


def orthogonalise(stack):
    """[n, rows, columns], rows <= columns -> nearest semi-orthogonal matrices (roughly)."""
    x = stack / (stack.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    for a, b, c in NEWTON_SCHULZ:
        gram = torch.bmm(x, x.transpose(1, 2))
        x = a * x + torch.bmm(b * gram + c * torch.bmm(gram, gram), x)
    return x


class Optimiser:
    """Both, over a dict of parameters with gradients.

    matrices, others: dict name -> parameter. rate(name) scales Adam's rate of a parameter.
    """

    def __init__(self, matrices, others, matrix_rate=0.02, adam_rate=3e-3, rates=None):
        self.matrices, self.others = matrices, others
        self.matrix_rate, self.adam_rate, self.rates = matrix_rate, adam_rate, rates or {}
        self.momentum = {name: torch.zeros_like(p) for name, p in matrices.items()}
        self.first = {name: torch.zeros_like(p) for name, p in others.items()}
        self.second = {name: torch.zeros_like(p) for name, p in others.items()}
        self.steps = 0
        self._groups = self._by_shape()

    def _by_shape(self):
        """(rows, columns) with rows <= columns -> names; equal shapes share one batched product."""
        groups = {}
        for name, p in self.matrices.items():
            groups.setdefault(tuple(sorted(p.shape[-2:])), []).append(name)
        return groups

    @torch.no_grad()
    def step(self, factor):
        """One update; factor scales all rates (schedule). Clears the gradients."""
        self.steps += 1
        for shape, names in self._groups.items():
            self._matrix_step(names, factor)
        self._adam_step(factor)
        for p in (*self.matrices.values(), *self.others.values()):
            p.grad = None

    def _matrix_step(self, names, factor):
        stacks, pieces = [], []
        for name in names:
            p = self.matrices[name]
            if p.grad is None:
                continue
            momentum = self.momentum[name].mul_(0.95).add_(p.grad)
            update = (p.grad + 0.95 * momentum).view(-1, *p.shape[-2:])
            turned = update.shape[1] > update.shape[2]
            pieces.append((p, turned, len(update)))
            stacks.append(update.transpose(1, 2) if turned else update)
        if not stacks:
            return
        done = 0
        orthogonal = orthogonalise(torch.cat(stacks))
        for p, turned, n in pieces:
            update = orthogonal[done:done + n]
            update = update.transpose(1, 2) if turned else update
            scale = max(1, p.shape[-2] / p.shape[-1]) ** 0.5
            p.mul_(1 - 0.02 * self.matrix_rate * factor)
            p.add_(update.reshape(p.shape), alpha=-self.matrix_rate * factor * scale)
            done += n

    def _adam_step(self, factor):
        corrections = 1 - 0.9**self.steps, 1 - 0.98**self.steps
        for name, p in self.others.items():
            if p.grad is None:
                continue
            first = self.first[name].mul_(0.9).add_(p.grad, alpha=0.1)
            second = self.second[name].mul_(0.98).addcmul_(p.grad, p.grad, value=0.02)
            rate = self.adam_rate * self.rates.get(name, 1.0) * factor
            p.addcdiv_(first / corrections[0], (second / corrections[1]).sqrt_().add_(1e-10), value=-rate)
