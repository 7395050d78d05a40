"""Arrays made of what may be in half precision. All scripts that are migrated really run."""

from __future__ import annotations

import pytest
from half_support import cases, check_lines, check_runs

from amp_migrate.api import migrate_source
from amp_migrate.core.options import Options

MIGRATED = cases("""\
=== in a condition
LINEAR
---
out = model(x)
if out.detach().numpy().sum() > 1e4:
    continue
loss = F.mse_loss(out, y)
---
if out.detach().float().numpy().sum() > 1e4:

=== of one after another
LINEAR
import numpy as np
---
out = model(x)
kept = {"out": out, "y": y}
loss = F.mse_loss(out, y)
seen = {k: np.linalg.svd(v.detach().cpu().numpy()) for k, v in kept.items()}
---
seen = {k: np.linalg.svd(v.detach().cpu().float().numpy()) for k, v in kept.items()}

=== of a result
LINEAR
---
out = model(x)
seen = out.detach().cpu().numpy()
loss = F.mse_loss(out, y)
print(seen.dtype, float(seen.sum()) < 1e9)
---
seen = out.detach().cpu().float().numpy()

=== in a row of others
LINEAR
seen = []
---
out = model(x)
loss = F.mse_loss(out, y)
seen.extend(out.data.numpy().tolist())
---
seen.extend(out.data.float().numpy().tolist())

=== by a function of NumPy
LINEAR
import numpy as np
---
out = model(x)
loss = F.mse_loss(out, y)
seen = np.asarray(out.detach())
print(seen.dtype)
---
seen = np.asarray(out.detach().float())

=== of places
model = nn.Linear(6, 3).to(device)
---
out = model(x)
_, places = torch.max(out.data, 1)
same = torch.max(out, 1)[1]
best = out.topk(2).indices
right = (out.argmax(1) == 0).cpu().numpy()
print(places.cpu().numpy(), same.view(-1).numpy(), best.numpy(), right)
loss = F.cross_entropy(out, y.long().squeeze(1))
---
print(places.cpu().numpy(), same.view(-1).numpy(), best.numpy(), right)

=== of data and of the loss
LINEAR
---
out = model(x)
loss = F.mse_loss(out, y)
print(x.numpy().dtype, loss.detach().numpy().dtype)
---
print(x.numpy().dtype, loss.detach().numpy().dtype)

=== of an unknown dtype
LINEAR
import sys
scale = eval(sys.argv[-1]) if len(sys.argv) > 5 else 2.0
def to_numpy(t): return t.detach().cpu().numpy()
---
out = model(x) * scale
seen = out.detach().numpy()
loss = F.mse_loss(out, y)
print(seen.dtype, to_numpy(out).dtype, to_numpy(y.double()).dtype, to_numpy(y.long()).dtype)
---
seen = full_out.detach().numpy()
return full_t.detach().cpu().numpy()

=== of a slice of an unknown dtype
LINEAR
import sys
scale = eval(sys.argv[-1]) if len(sys.argv) > 5 else 2.0
seen = []
def every(t): return t[::2].detach().numpy()
---
out = model(x) * scale
loss = F.mse_loss(out, y)
seen.extend(every(out))
print(len(seen), every(y.double()).dtype)
---
return full_t[::2].detach().numpy()

=== of the data of an unknown dtype, beside a half of something else
LINEAR
import sys
scale = eval(sys.argv[-1]) if len(sys.argv) > 5 else 2.0
class Split:
    def __init__(self, size):
        self.half = size // 2
print(Split(6).half)
def to_numpy(t): return t.data.numpy()
---
out = model(x) * scale
seen = out.data.to("cpu").numpy()
loss = F.mse_loss(out, y)
print(seen.dtype, to_numpy(out).dtype, to_numpy(y.double()).dtype)
---
seen = full_out.data.to("cpu").numpy()
return full_t.data.numpy()

=== without autocast
LINEAR
def look(model):
    with torch.no_grad():
        return model(torch.ones(1, 6).to(device)).cpu().numpy()
---
out = model(x)
loss = F.mse_loss(out, y)
print(look(model).dtype)
---
return model(torch.ones(1, 6).to(device)).cpu().numpy()

=== a field of what a function gives
LINEAR
import types
def judged(x, y):
    out = model(x)
    return types.SimpleNamespace(loss=F.mse_loss(out, y), out=out)
---
got = judged(x, y)
loss = got.loss
out = got.out
seen = torch.from_numpy(out.detach().cpu().numpy())
print((seen @ torch.ones(seen.shape[1])).dtype)
---
seen = torch.from_numpy(full_out.detach().cpu().numpy())
=== by a lambda
LINEAR
import numpy as np
whole = lambda t: t.detach().cpu().numpy()
---
out = model(x)
loss = F.mse_loss(out, y)
print(np.linalg.svd(whole(out))[1].dtype, whole(y).dtype)
---
print(np.linalg.svd(whole(out.float()))[1].dtype, whole(y).dtype)

=== of what becomes one by itself
LINEAR
import numpy as np
---
out = model(x)
loss = F.mse_loss(out, y)
print(np.linalg.svd(out.detach().cpu())[1].dtype)
---
print(np.linalg.svd(out.detach().cpu().float())[1].dtype)
""")
REFUSED = cases("""\
=== of unknown precision
LINEAR
import sys
scale = eval(sys.argv[-1]) if len(sys.argv) > 5 else 2.0
---
out = model(x) * scale
seen = (out + out).detach().numpy()
loss = F.mse_loss(out, y)
---
seen =

=== of unknown precision, where there are halves
LINEAR
import sys
scale = eval(sys.argv[-1]) if len(sys.argv) > 5 else 2.0
print(torch.ones(2).half().dtype, torch.bfloat16)
---
out = model(x) * scale
seen = out.detach().numpy()
loss = F.mse_loss(out, y)
---
seen =
""")


@pytest.mark.parametrize("name", MIGRATED)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_migrated(name: str, dtype: str) -> None:
    case = MIGRATED[name]
    result = migrate_source(case.source, options=Options(dtype=dtype))
    assert result.changed, result.diagnostics
    check_lines(result.output, case.lines)
    if dtype == "float16":
        check_runs(case.source, result.output)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_refused(name: str, dtype: str) -> None:
    case = REFUSED[name]
    result = migrate_source(case.source, options=Options(dtype=dtype))
    assert result.output == case.source
    (found,) = result.diagnostics
    assert found.code == "AMP020"
    assert found.blocker is not None
    assert found.blocker.text.startswith(case.lines[0])


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_halves_that_autocast_does_not_make(half: str) -> None:
    case = REFUSED["of unknown precision, where there are halves"]
    source = case.source.replace("torch.ones(2).half().dtype", f"torch.{half}")
    source = source.replace(", torch.bfloat16", "")
    result = migrate_source(source)
    assert result.changed is (half == "bfloat16")
    if result.changed:
        check_runs(source, result.output)
