"""Of which dtype the results of operations are, seen where they leave a region. All scripts really run.

No operation is taken to give fp32 that is not known to: where it gives half precision, a layer outside of the
region raises.
"""

from __future__ import annotations

import pytest
from exactness import check_mixed, check_off

from amp_migrate.api import migrate_source

HEAD = """\
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = [(torch.randn(16, 4), torch.randn(16, 8)) for _ in range(3)]
probe = nn.Linear(8, 1).to(device)
"""
NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 8), nn.Linear(4, 8)])
        self.out = nn.Linear(8, 8)
    def forward(self, x):
        BODY
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    h = model(x)
    loss = F.mse_loss(HEAD, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ONE = NET.replace("HEAD", "h").replace("BODY", "return self.out(self.layers[0](x))")
OPERATIONS = """\
F.hardsigmoid(h)
torch.hypot(h, h)
h.hypot(h)
torch.logaddexp(h, h)
h.true_divide(2)
torch.floor_divide(h, 2)
h.ceil()
torch.sign(h)
h.trunc()
h.frac()
torch.sinc(h)
h.flatten(1)
torch.atleast_2d(h)
h.tile(1, 1)
torch.tile(h, (1, 1))
torch.kron(h, torch.ones(1, 1, device=h.device))
torch.outer(h[0], h[1])
torch.column_stack((h, h))[:, :8]
torch.dstack([h, h])[:, :, 0]
torch.block_diag(h, h)[:16, :8]
torch.cartesian_prod(h[0], h[1])[:, :1].expand(64, 8)
h.addcmul(h, h)
torch.addcdiv(h, h, h.abs() + 1)
h.fmod(2)
torch.remainder(h, 2)
h.heaviside(h)
h.to_dense()
h.as_strided((16, 8), (8, 1))
h.take_along_dim(torch.zeros(16, 8, dtype=torch.long, device=h.device), 1)
torch.take(h, torch.arange(8, device=h.device))
h.unflatten(1, (2, 4)).flatten(1)
torch.diff(h, dim=1, prepend=h[:, :1])
h.cumsum(0)
h * y.mean()
h * loss.detach()
h + torch.tensor(2.0, device=device)
h / torch.ones((), device=device)
h * F.mse_loss(y, y + 1)
h * nn.MSELoss()(y, y + 1)
h * torch.arange(8, device=device)
h.mean(1, keepdim=True) * torch.ones(16, 8, device=device).long()
h.cummax(0)[0]
h.cummax(0).values
h.nanmean(0)
h.median(0)[0]
h.logit(1e-3)
torch.special.expit(h)
h.rot90(2)
torch.flipud(h)
h.fliplr()
torch.swapaxes(h, 0, 0)
h.mT.T
h.copysign(h)
torch.fmax(h, h)
h.minimum(h)
torch.threshold(h, 0.1, 0.0)
F.threshold(h, 0.1, 0.0)
F.rrelu(h)
F.hardshrink(h)
F.softshrink(h)
F.tanhshrink(h)
F.softsign(h)
F.batch_norm(h, None, None, training=True)
F.layer_norm(h, (8,))
F.dropout1d(h)
F.pixel_shuffle(h.view(4, 4, 2, 4), 2).reshape(16, 8)
F.lp_pool1d(h.unsqueeze(0), 2, 1)[0][:, :1].expand(16, 8)
F.fold(F.unfold(h.view(1, 1, 16, 8), (1, 1)), (16, 8), (1, 1))[0, 0]
F.embedding(torch.zeros(16, dtype=torch.long, device=h.device), h)
F.local_response_norm(h.unsqueeze(0), 2)[0]
F.gumbel_softmax(h)
F.one_hot(h.argmax(1), 8).type_as(h)
F.affine_grid(h[:2, :6].view(2, 2, 3), (2, 1, 2, 4)).reshape(2, 16)[:, :8]
torch.scatter(h, 1, torch.zeros(16, 8, dtype=torch.long, device=h.device), h)
h.index_fill(0, torch.tensor([0], device=h.device), 0.0)
h.masked_scatter(h > 0, h)
h.resolve_conj()
torch.real(h)
h.addmm(h[:, :8], torch.ones(8, 8, device=h.device, dtype=h.dtype))
torch.nn.functional.hardswish(h)
torch.clone(h)
torch.complex(h.float(), h.float()).real
torch.empty_like(h).normal_()
h.new_empty(16, 8).fill_(0)
h.sum_to_size(16, 8)
torch.broadcast_tensors(h, h)[0]
torch.broadcast_to(h, (16, 8))
h.broadcast_to((16, 8))
torch.meshgrid(h[0], h[1])[0]
torch.tensor_split(h, 2)[0]
h.vsplit(2)[0]
torch.hsplit(h, 1)[0]
torch.unique(h, dim=0)
torch.aminmax(h, dim=0)[0].expand(16, 8)
torch.topk(h, 8).values
h.topk(8)[0]
torch.sort(h).values
torch.std_mean(h, 0)[0]
torch.nn.utils.rnn.pad_sequence([h[0], h[1]], batch_first=True)
torch.nn.utils.parameters_to_vector([h[0]])
h.detach().requires_grad_()
h.clone().detach_()
h.repeat_interleave(1, 0)
h.roll(1)
h.reshape_as(h)
h.type(h.dtype)
h.to(h)
h.to(h.device)
h.cuda() if h.is_cuda else h
h.cpu().to(device)
h * 1
1 - h
h ** 1
h // 1
h % 2
-h
+h
abs(h)
(h > 0) * h
(h > 0).to(h.dtype)
(h > 0).type_as(h)
torch.ones(16, 8, dtype=h.dtype, device=device)
torch.ones(16, 8, device=device).to(h)
h[h[:, 0].argsort()]
h[:, [0, 1, 2, 3, 4, 5, 6, 7]]
h[...]
[h, h][0]
{"a": h}["a"]
dict(a=h)["a"]
(lambda q: q)(h)
h if x.sum() > 0 else h
torch.stack([q for q in h])
torch.stack(list(h))
torch.stack(list(map(torch.relu, h)))
torch.cat([*h.split(4)])
torch.cat(tuple(h.chunk(2)))
sum([h, h])
sum(q for q in [h, h])
torch.sum(torch.stack([h, h]), 0)
getattr(h, "data")
h.data.clone()
copy.deepcopy(h.detach())
copy.copy(h.detach())
next(iter([h]))
max([h], key=lambda q: q.sum())
[*[h]][0]
F.leaky_relu_(h.detach())
F.normalize(h)
torch.nn.Hardsigmoid()(h)
nn.Threshold(0.1, 0.0)(h)
nn.AlphaDropout()(h)
nn.LocalResponseNorm(2)(h.unsqueeze(0))[0]
nn.CosineSimilarity()(h, h).expand(8, 16).t()
nn.BatchNorm1d(8).to(device)(h)
nn.PairwiseDistance()(h, h).expand(8, 16).t()
nn.Softplus()(h)
nn.CELU()(h)
nn.Hardshrink()(h)
nn.FeatureAlphaDropout()(h.unsqueeze(0))[0]
nn.CircularPad1d(1)(h.unsqueeze(0))[0][:, 1:9]
nn.ConstantPad1d(1, 0.)(h)[:, 1:9]
nn.PixelUnshuffle(1)(h.view(1, 1, 16, 8))[0, 0]
nn.MaxUnpool1d(1)(h.unsqueeze(0), torch.arange(8, device=device).expand(1, 16, 8))[0]
nn.FractionalMaxPool2d(1, output_size=(16, 8))(h.view(1, 1, 16, 8))[0, 0]
nn.ReplicationPad1d(1)(h)[:, 1:9]
nn.Unflatten(1, (2, 4))(h).flatten(1)
nn.UpsamplingNearest2d(scale_factor=1)(h.view(1, 1, 16, 8))[0, 0]
"""


def test_what_operations_make_of_half_values() -> None:
    """One script for all, since only what is wrong is looked at: each line of it would raise."""
    uses = "".join(
        f"    print(probe({one}).shape)\n" for one in OPERATIONS.splitlines()
    )
    source = HEAD + ONE + uses
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert check_off(source, output) == []
    assert check_mixed(source, output) == []


@pytest.mark.parametrize(
    ("body", "first"),
    [
        ("return [layer(x) for layer in self.layers]", "h[0]"),
        (
            "return {str(i): layer(x) for i, layer in enumerate(self.layers)}",
            "h['0']",
        ),
        ("return torch.stack([layer(x) for layer in self.layers])", "h[0]"),
        ("return list(map(lambda layer: layer(x), self.layers))", "h[0]"),
        ("return tuple(m(x) for m in self.layers.children())", "h[0]"),
        ("first, second = self.layers; return first(x), second(x)", "h[0]"),
        ("return [(lambda q: layer(q))(x) for layer in self.layers]", "h[0]"),
    ],
)
def test_what_layers_give_that_a_comprehension_takes_out_of_a_list(
    body: str, first: str
) -> None:
    source = HEAD + NET.replace("HEAD", first).replace("BODY", body)
    source += f"    print(probe({first}.detach()).shape)\n"
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert check_off(source, output) == []
    assert check_mixed(source, output) == []


def test_what_raises_in_the_backward_alone() -> None:
    """``addr_`` promotes its operands, and its gradient is a product that wants them of one dtype."""
    body = "h = self.layers[0](x); return self.out(torch.zeros_like(h).addr_(x[:, 0], h[0]))"
    source = HEAD + NET.replace("HEAD", "h").replace("BODY", body)
    result = migrate_source(source, path="train.py")
    assert result.output == source
    assert [found.code for found in result.diagnostics] == ["AMP020"]
