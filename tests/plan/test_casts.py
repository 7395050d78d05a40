"""Casts of operands that half precision does not suit. All scripts that are migrated really run."""

from __future__ import annotations

import pytest
from half_support import cases, check_lines, check_runs

from amp_migrate.api import migrate_source

MIGRATED = cases("""\
=== an inverse
model = nn.Linear(6, 9).to(device)
---
matrix = model(x).view(8, 3, 3) + 3 * torch.eye(3, device=device)
loss = torch.inverse(matrix).mean() + torch.linalg.slogdet(matrix)[1].mean()
---
loss = torch.inverse(matrix.float()).mean() + torch.linalg.slogdet(matrix.float())[1].mean()

=== a method
model = nn.Linear(6, 9).to(device)
---
matrix = model(x).view(8, 3, 3) + 3 * torch.eye(3, device=device)
loss = 0.01 * matrix.det().mean()
---
loss = 0.01 * matrix.float().det().mean()

=== a quantile
LINEAR
---
loss = torch.quantile((model(x) * 2).squeeze(1), 0.5) ** 2
---
loss = torch.quantile((model(x) * 2).squeeze(1).float(), 0.5) ** 2

=== of data
LINEAR
---
scale = torch.quantile(x, 0.9)
loss = F.mse_loss(model(x) * scale, y)
---
scale = torch.quantile(x, 0.9)

=== a spectrum
LINEAR
---
spectrum = torch.fft.rfft(model(x), dim=0)
loss = spectrum.abs().mean()
---
spectrum = torch.fft.rfft(model(x).float(), dim=0)

=== a store into a copy
NET
    h = self.features(x)
    out = self.memory.clone()
    out[x.argmax(1)] = h
    return self.fc2(out)
---
loss = F.mse_loss(model(x), y)
---
out[x.argmax(1)] = h.to(out.dtype)

=== a store of data into a result
NET
    h = self.fc1(x)
    out = h.clone()
    out[x.argmax(1)] = torch.cat([x, x], 1)[:, :8].clone()
    return self.fc2(out)
---
loss = F.mse_loss(model(x), y)
---
out[x.argmax(1)] = torch.cat([x, x], 1)[:, :8].clone().to(out.dtype)

=== a store of fp32 into a result
NET
    h = self.fc1(x)
    out = h.clone()
    out[x.argmax(1)] = self.features(x).float()
    return self.fc2(out)
---
loss = F.mse_loss(model(x), y)
---
out[x.argmax(1)] = self.features(x).float().to(out.dtype)

=== a function that stores
NET
    h = self.features(x)
    to = x.argmax(1, keepdim=True).expand(-1, 8)
    base = torch.zeros(8, 8, device=x.device)
    return self.fc2(torch.scatter_reduce(base, 0, to, h, "sum"))
---
loss = F.mse_loss(model(x), y)
---
return self.fc2(torch.scatter_reduce(base, 0, to, h.to(base.dtype), "sum"))

=== tests of other dtypes
NET
    mask = x > 0
    if mask.dtype == torch.bool and self.fc1.weight.dtype == torch.float32:
        mask = mask.float()
    assert x.dtype == torch.float32
    return self.fc2(self.features(x * mask))
---
loss = F.mse_loss(model(x), y)
---
assert x.dtype == torch.float32

=== a store by a mask
LINEAR
---
buffer = torch.zeros(8, 1, device=device)
buffer[y > 0.5] = model(x)[y > 0.5].clone()
loss = buffer.pow(2).mean()
---
buffer[y > 0.5] = model(x)[y > 0.5].clone().to(buffer.dtype)

=== a store into a buffer
NET
    h = self.features(x)
    index = torch.arange(8, device=x.device)
    self.memory[index] = h.detach()
    return self.fc2(h)
---
loss = F.mse_loss(model(x), y)
---
self.memory[index] = h.detach().to(self.memory.dtype)

=== added by an index
LINEAR
---
out = model(x)
total = torch.zeros(4, 1, device=device)
total.index_add_(0, torch.arange(8, device=device) % 4, out)
loss = total.pow(2).mean()
---
total.index_add_(0, torch.arange(8, device=device) % 4, out.to(total.dtype))

=== scattered by a keyword
LINEAR
---
out = model(x)
total = torch.zeros(8, 1, device=device)
total = total.scatter(0, torch.zeros_like(y, dtype=torch.long), src=out)
loss = total.pow(2).mean()
---
total = total.scatter(0, torch.zeros_like(y, dtype=torch.long), src=out.to(total.dtype))

=== a critic
LINEAR
---
loss = -model(x).mean() + torch.mean(model(-x))
---
loss = -model(x).float().mean() + torch.mean(model(-x).float())

=== a hinge
LINEAR
---
out = model(x)
loss = F.relu(1 - out).mean()
---
loss = F.relu(1 - out).float().mean()

=== a mean that is fp32 anyway
LINEAR
---
loss = ((model(x) - y) ** 2).mean()
---
loss = ((model(x) - y) ** 2).mean()

=== a mean of what may be double
LINEAR
---
loss = (model(x) - y).abs().mean()
---
loss = (model(x) - y).abs().mean()
""")
REFUSED = cases("""\
=== a test of the dtype
NET
    h = self.features(x)
    assert h.dtype == torch.float32
    return self.fc2(h)
---
loss = F.mse_loss(model(x), y)
---
assert

=== a sum in place
NET
    h = self.features(x)
    d = h.pow(2).sum(1, keepdim=True).expand(8, 8).clone()
    d.addmm_(h, self.memory)
    return self.fc2(d)
---
loss = F.mse_loss(model(x), y)
---
d.addmm_

=== a dot product by einsum
NET
    h = self.features(x)
    return self.fc2(h) + torch.einsum("bi,bi->b", h, h).unsqueeze(1)
---
loss = F.mse_loss(model(x), y)
---
return self.fc2

=== a product of its own
LINEAR
---
h = model(x)
loss = torch.linalg.slogdet(h.T @ h + torch.eye(1, device=device))[1]
---
loss =

=== of unknown precision
LINEAR
---
loss = torch.quantile((model(x) - y).squeeze(1), 0.5)
---
loss =

=== products inside
model = nn.Linear(6, 9).to(device)
---
loss = torch.linalg.pinv(model(x).view(8, 3, 3)).mean()
---
loss =

=== a store into what may be no tensor
LINEAR
class Store:
    def __init__(self, kept):
        self.kept = kept
    def put(self, index, value):
        self.kept[index] = value * 2
store = Store(loader[0][0].clone())
---
out = model(x)
store.put(y[:, 0] > 0, out.expand(8, 6)[y[:, 0] > 0])
loss = F.mse_loss(out, y)
---
        self.kept[index]
""")


@pytest.mark.parametrize("name", MIGRATED)
def test_migrated(name: str) -> None:
    case = MIGRATED[name]
    result = migrate_source(case.source)
    assert result.changed, result.diagnostics
    check_lines(result.output, case.lines)
    check_runs(case.source, result.output)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    case = REFUSED[name]
    result = migrate_source(case.source)
    assert result.output == case.source
    (found,) = result.diagnostics
    assert found.code == "AMP020"
    place = found.blocker or found.place
    line = case.source[: case.source.index(case.lines[0])].count("\n") + 1
    assert place.line == line
