"""What torch says of the operations of ``rules/ops.toml``, word by word, on the CPU under CUDA's policy.

Run as a script, for the policy stays for the rest of a process: it prints what does not hold, as JSON.
`python tests/operation_laws.py cuda` asks a GPU, with no policy but torch's own.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from amp_migrate.catalogue.operations import rows
from amp_migrate.validate.harness import policy

NOT_TRIED = frozenset(
    """FloatTensor IntTensor LongTensor all_reduce astype broadcast convolve convolve2d correlate2d
    iter list next numpy pin_memory reversed tuple upsample half bfloat16 cuda float double to type_as cpu
    pca_lowrank svd_lowrank lobpcg matrix_rank lstsq conv1d_input conv1d_weight conv2d_input
    conv2d_weight conv3d_input conv3d_weight coalesce to_dense float_power_ avg_pool3d equal
    matrix_exp addr_ orgqr ormqr assert_close rms_norm""".split()
)
"""Of NumPy, Python or distributed training; casts and moves; what the CPU has in no half precision, and what
raised in earlier versions, or raises on GPUs or in the backward alone; and what torch 2.13 computes in fp32
and 2.11 does not."""

CALLS = """\
add x.add(y)
add_ x.add_(y)
addbmm torch.addbmm(x, b, c)
addbmm_ x.addbmm_(b, c)
addcdiv torch.addcdiv(x, y, w)
addcmul torch.addcmul(x, y, w)
addmm torch.addmm(x, y, w)
addmm_ x.addmm_(y, w)
addmv torch.addmv(v, x, u)
addmv_ v.addmv_(x, u)
addr torch.addr(x, v, u)
baddbmm torch.baddbmm(b, b, c)
baddbmm_ b.baddbmm_(b, c)
as_strided x.as_strided((2, 2), (1, 2))
as_tensor torch.as_tensor(x)
batch_norm F.batch_norm(x, None, None, training=True)
bernoulli torch.bernoulli(x.clamp(0.1, 0.9))
bilinear F.bilinear(x, y, b)
bmm torch.bmm(b, c)
binary_cross_entropy F.binary_cross_entropy(x.abs(), y)
broadcast_to x.broadcast_to(2, 4, 4)
chain_matmul torch.chain_matmul(x, y)
channel_shuffle F.channel_shuffle(i4, 2)
clamp x.clamp(y, w + y)
clamp_ x.clamp_(y, w + y)
clip x.clip(y, w + y)
clip_ x.clip_(y, w + y)
clamp_max x.clamp_max(y)
clamp_max_ x.clamp_max_(y)
clamp_min x.clamp_min(y)
clamp_min_ x.clamp_min_(y)
cosine_embedding_loss F.cosine_embedding_loss(x, y, torch.ones(4))
cross_entropy F.cross_entropy(x, k)
cross torch.cross(x[:, :3], y[:, :3], dim=1)
conv1d F.conv1d(b, c)
conv2d F.conv2d(i4, z)
conv3d F.conv3d(i4[None], z[None])
conv_transpose1d F.conv_transpose1d(b, c)
conv_transpose2d F.conv_transpose2d(i4, z)
conv_transpose3d F.conv_transpose3d(i4[None], z[:, None])
dot torch.dot(v, u)
vdot torch.vdot(v, u)
mv torch.mv(x, u)
einsum torch.einsum("ij,jk->ik", x, y)
fill_ x.fill_(s)
fold F.fold(x, (2, 2), (1, 1))
gather x.gather(1, j)
grid_sample F.grid_sample(i4, z[:, :, :, :2], align_corners=False)
group_norm F.group_norm(x, 2)
heaviside torch.heaviside(x, y)
index_add x.index_add(0, k, y)
index_add_ x.index_add_(0, k, y)
index_copy x.index_copy(0, k, y)
index_copy_ x.index_copy_(0, k, y)
index_fill x.index_fill(0, k[:1], s)
index_fill_ x.index_fill_(0, k[:1], s)
index_put x.index_put((k,), y)
index_put_ x.index_put_((k,), y)
index_reduce x.index_reduce(0, k, y, "prod")
index_reduce_ x.index_reduce_(0, k, y, "prod")
index_select x.index_select(0, k)
instance_norm F.instance_norm(b)
interpolate F.interpolate(b, scale_factor=2)
kl_div F.kl_div(x, y, reduction="sum")
kthvalue x.kthvalue(1)
layer_norm F.layer_norm(x, (4,))
rms_norm F.rms_norm(x, (4,))
lerp torch.lerp(x, y, w)
lerp_ x.lerp_(y, w)
local_response_norm F.local_response_norm(b, 2)
matrix_norm torch.linalg.matrix_norm(x, 2)
lp_pool1d F.lp_pool1d(b, 2, 2)
lp_pool2d F.lp_pool2d(i4, 2, 2)
margin_ranking_loss F.margin_ranking_loss(v, u, torch.ones(4))
masked_fill x.masked_fill(x > 0, s)
masked_fill_ x.masked_fill_(x > 0, s)
masked_scatter x.masked_scatter(x > 0, y)
masked_scatter_ x.masked_scatter_(x > 0, y)
masked_select x.masked_select(x > 0)
adaptive_avg_pool1d F.adaptive_avg_pool1d(b, 1)
adaptive_avg_pool2d F.adaptive_avg_pool2d(i4, 1)
adaptive_avg_pool3d F.adaptive_avg_pool3d(i4[None], 1)
adaptive_max_pool1d F.adaptive_max_pool1d(b, 1)
adaptive_max_pool2d F.adaptive_max_pool2d(i4, 1)
adaptive_max_pool3d F.adaptive_max_pool3d(i4[None], 1)
avg_pool1d F.avg_pool1d(b, 2)
avg_pool2d F.avg_pool2d(i4, 2)
avg_pool3d F.avg_pool3d(i4[None], 2)
max_pool1d F.max_pool1d(b, 2)
max_pool2d F.max_pool2d(i4, 2)
max_pool3d F.max_pool3d(i4[None], 2)
max x.max(1)
min x.min(1)
median x.median(1)
nanmedian x.nanmedian(1)
moveaxis x.moveaxis(0, 1)
movedim x.movedim(0, 1)
multi_dot torch.linalg.multi_dot([x, y])
multi_margin_loss F.multi_margin_loss(x, k)
multilabel_margin_loss F.multilabel_margin_loss(x, j)
multinomial torch.multinomial(x.abs(), 1)
narrow x.narrow(0, 0, 2)
nextafter torch.nextafter(x, y)
nll_loss F.nll_loss(x, k)
normal torch.normal(x, w)
norm x.norm()
pad F.pad(x, (1, 1))
pixel_shuffle F.pixel_shuffle(i4, 2)
pixel_unshuffle F.pixel_unshuffle(i4, 2)
poisson_nll_loss F.poisson_nll_loss(x, y)
pow x.pow(2)
prelu F.prelu(x, v[:1])
put_ x.put_(k, u)
put x.put(k, u)
set_ x.set_(y)
cartesian_prod torch.cartesian_prod(v, u)
vecdot torch.linalg.vecdot(x, y)
ctc_loss F.ctc_loss(b, j[:, :2], (4, 4, 4, 4), (2, 2, 2, 2))
histogram torch.histogram(x, 4)
polar torch.polar(x, y)
renorm x.renorm(2, 0, 1.0)
repeat x.repeat(2, 1)
repeat_interleave x.repeat_interleave(2, 0)
requires_grad_ x.requires_grad_(False)
resize_ x.resize_(4, 4)
roll x.roll(1)
rsub torch.rsub(x, y)
scatter x.scatter(1, j, y)
scatter_ x.scatter_(1, j, y)
scatter_add x.scatter_add(1, j, y)
scatter_add_ x.scatter_add_(1, j, y)
scatter_reduce x.scatter_reduce(1, j, y, "sum")
scatter_reduce_ x.scatter_reduce_(1, j, y, "sum")
select x.select(0, 0)
soft_margin_loss F.soft_margin_loss(x, y)
scaled_dot_product_attention F.scaled_dot_product_attention(b, c, c)
split x.split(2)
chunk x.chunk(2)
sum_to_size x.sum_to_size(1, 4)
swapaxes x.swapaxes(0, 1)
swapdims x.swapdims(0, 1)
transpose x.transpose(0, 1)
permute x.permute(1, 0)
take x.take(k)
take_along_dim x.take_along_dim(j, 1)
tensordot torch.tensordot(x, y, 1)
tensor_split x.tensor_split(2)
threshold F.threshold(x, 0.1, 0.0)
threshold_ F.threshold_(x, 0.1, 0.0)
tile x.tile(2)
topk x.topk(1)
triplet_margin_loss F.triplet_margin_loss(x, y, w)
unflatten x.unflatten(1, (2, 2))
unfold x.unfold(0, 2, 2)
view x.view(2, 8)
view_as x.view_as(y)
reshape x.reshape(2, 8)
reshape_as x.reshape_as(y)
expand x.expand(2, 4, 4)
expand_as x.expand_as(y)
where torch.where(x > 0, x, y)
fill_diagonal_ x.fill_diagonal_(1.0)
hsplit x.hsplit(2)
vsplit x.vsplit(2)
dsplit b.dsplit(2)
glu F.glu(x)
flip x.flip(0)
quantile x.quantile(0.5)
nanquantile x.nanquantile(0.5)
cummax x.cummax(0)
cummin x.cummin(0)
cumsum x.cumsum(0)
cumprod x.cumprod(0)
logsumexp x.logsumexp(0)
softmax x.softmax(0)
log_softmax x.log_softmax(0)
softmin F.softmin(x, dim=0)
cholesky torch.linalg.cholesky(x @ x.T + 9 * torch.eye(4, dtype=x.dtype))
stft torch.stft(v, 4, return_complex=True)
istft torch.istft(torch.stft(v, 4, return_complex=True), 4)
sspaddmm torch.sspaddmm(x.to_sparse(), y.to_sparse(), w)
pinv torch.linalg.pinv(x)
matrix_exp torch.matrix_exp(x)
arange torch.arange(4)
randperm torch.randperm(4)
randint torch.randint(0, 4, (2,))
randint_like torch.randint_like(x, 4)
eye torch.eye(4)
linspace torch.linspace(0, 1, 4)
hann_window torch.hann_window(4)
hamming_window torch.hamming_window(4)
blackman_window torch.blackman_window(4)
ones torch.ones(4)
zeros torch.zeros(4)
rand torch.rand(4)
randn torch.randn(4)
empty torch.empty(4)
full torch.full((4,), 1.0)
full_like torch.full_like(x, 1.0)
tensor torch.tensor([1.0])
new x.new(4)
new_ones x.new_ones(4)
new_zeros x.new_zeros(4)
new_empty x.new_empty(4)
new_full x.new_full((4,), 1.0)
new_tensor x.new_tensor([1.0])
from_numpy torch.from_numpy(x.numpy())
smm torch.smm(x.to_sparse(), y)
spmm torch.spmm(x.to_sparse(), y)
sparse.mm torch.sparse.mm(x.to_sparse(), y)
copy_ x.copy_(y)
subtract_ x.subtract_(y)
sub_ x.sub_(y)
mul_ x.mul_(y)
div_ x.div_(y)
outer torch.outer(v, u)
ger torch.ger(v, u)
inner torch.inner(x, y)
linear F.linear(x, y)
maximum torch.maximum(x, y)
minimum torch.minimum(x, y)
bool x.bool()
unsqueeze x.unsqueeze(0)
unsqueeze_ x.unsqueeze_(0)
expit torch.special.expit(x)
feature_dropout torch.feature_dropout(x, 0.5, True)
diff x.diff()
std x.std()
var x.var()
"""
"""How an operation is called where it is not just given ``x``, ``x`` and ``y``, or a list of both."""

GUESSES = (
    "torch.NAME(x)", "F.NAME(x)", "x.NAME()", "torch.NAME(x, y)", "F.NAME(x, y)", "torch.NAME([x, y])",
    "torch.linalg.NAME(x)", "torch.fft.NAME(x)",
)  # fmt: skip


def operands(
    dtype: torch.dtype, other: torch.dtype | None = None, **times: float
) -> dict[str, Any]:
    """What calls are given: ``x`` and its like of one dtype, ``y`` and its like of another."""
    generator = torch.Generator("cpu").manual_seed(0)
    drawn = {
        name: torch.rand(shape, generator=generator, device="cpu").to(DEVICE) * 0.5
        + 0.2
        for name, shape in {
            "x": (4, 4), "y": (4, 4), "w": (4, 4), "v": (4,), "u": (4,), "b": (4, 4, 4), "c": (4, 4, 4),
            "i4": (4, 4, 4, 4), "z": (4, 4, 4, 4), "s": (),
        }.items()
    }  # fmt: skip
    drawn["x"] = drawn["x"] * torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    second = {"y", "w", "u", "c", "z", "s"}
    found: dict[str, Any] = {
        name: (one * times.get(name, times.get("rest", 1.0))).to(
            other if other is not None and name in second else dtype
        )
        for name, one in drawn.items()
    }
    found["k"] = torch.tensor([1, 0, 2, 3])
    found["j"] = torch.tensor([[1, 0, 2, 3]] * 4)
    return found


def call(text: str, given: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    return eval(text, {"torch": torch, "F": F}, given)


def tensors(result: Any) -> list[torch.Tensor]:
    """What an operation gives that is a tensor of numbers; of what chooses, not where that was."""
    if isinstance(result, torch.Tensor):
        return [result]
    found = [one for one in result if isinstance(one, torch.Tensor)]
    floats = [one for one in found if one.is_floating_point()]
    return floats or found


def calls() -> dict[str, str]:
    """The call by which each operation is tried."""
    written = dict(line.split(" ", 1) for line in CALLS.splitlines())
    for name in rows().keys() - written.keys() - NOT_TRIED:
        for guess in GUESSES:
            text = guess.replace("NAME", name)
            try:
                call(text, operands(torch.float32))
            except Exception:
                continue
            written[name] = text
            break
        else:
            written[name] = f"torch.{name}(x)"
    return {n: written[n] for n in rows() if n in written and n not in NOT_TRIED}


FULL, HALF = torch.float32, torch.float16

DEVICE = "cpu"


class Laws:
    """What has to hold of a call by each word, without autocast unless it speaks of that."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.low = HALF
        """The dtype of half precision; the CPU has no float16 for some."""

    def find_low(self) -> None:
        """Take the one that there is for the call."""
        try:
            self.of(HALF)
        except Exception as error:
            if "not implemented for 'Half'" in str(error):
                self.low = torch.bfloat16

    def of(self, *dtypes: torch.dtype, on: bool = False, **times: float) -> Any:
        with torch.autocast(DEVICE, dtype=self.low, enabled=on):
            return call(self.text, operands(*dtypes, **times))

    def dtypes(self, *dtypes: torch.dtype, on: bool = False) -> set[torch.dtype]:
        return {one.dtype for one in tensors(self.of(*dtypes, on=on))}

    def raises(self, *dtypes: torch.dtype, on: bool = False) -> bool:
        try:
            self.of(*dtypes, on=on)
        except (RuntimeError, IndexError):
            return True
        return False

    def same(self, factor: float, **times: float) -> bool:
        """Whether a result is multiplied by a factor where operands are."""
        return all(
            torch.allclose(factor * one.double(), other.double(), rtol=1e-4, atol=1e-6)
            for one, other in zip(
                tensors(self.of(FULL)), tensors(self.of(FULL, **times)), strict=True
            )
        )

    def shares(self) -> bool:
        given = operands(FULL)
        own = given["x"].untyped_storage().data_ptr()
        found = tensors(call(self.text, given))
        return any(one.untyped_storage().data_ptr() == own for one in found)

    # -- one for each word --------------------------------------------------------------------

    def half(self) -> bool:
        return self.dtypes(FULL, on=True) == {self.low}

    def fp32(self) -> bool:
        return self.dtypes(self.low, on=True) == {FULL}

    def promote(self) -> bool:
        return self.dtypes(self.low, on=True) == {self.low} and self.dtypes(
            FULL, self.low, on=True
        ) == self.dtypes(self.low, FULL, on=True) == {FULL}

    def untouched(self) -> bool:
        return self.dtypes(self.low, on=True) == {self.low}

    def is_banned(self) -> bool:
        return self.raises(FULL, on=True)

    def first(self) -> bool:
        return self.dtypes(FULL) == {FULL} and self.dtypes(self.low) == {self.low}

    def promoted(self) -> bool:
        return self.first() and (
            self.raises(self.low, FULL) or self.dtypes(self.low, FULL) == {FULL}
        )

    def kept(self) -> bool:
        return self.dtypes(self.low) == {self.low}

    def made(self) -> bool:
        return self.dtypes(self.low, on=True) == {FULL}

    def counted(self) -> bool:
        return self.dtypes(self.low, on=True) == {torch.int64}

    def integers(self) -> bool:
        return not any(one.is_floating_point for one in self.dtypes(self.low, on=True))

    def compares(self) -> bool:
        result = self.of(FULL)
        return isinstance(result, bool) or result.dtype == torch.bool

    def of_one_dtype(self) -> bool:
        return self.raises(self.low, FULL) or self.raises(FULL, self.low)

    def no_half(self) -> bool:
        return self.raises(self.low) or self.raises(FULL, self.low)

    def wide(self) -> bool:
        return self.raises(self.low) and not self.raises(FULL)

    def lacks_half(self) -> bool:
        return self.raises(torch.float16) and not self.raises(torch.float16, on=True)

    def fresh(self) -> bool:
        return not self.shares()

    def turns(self) -> bool:
        given = operands(FULL)
        return bool(torch.equal(call(self.text, given), given["x"].T))

    def each(self) -> bool:
        given, turned = operands(FULL), operands(FULL)
        turned = {k: v.flip(0) if v.dim() else v for k, v in turned.items()}
        one, other = call(self.text, given), call(self.text, turned)
        return one.shape == given["x"].shape and bool(
            torch.allclose(one.flip(0), other, equal_nan=True)
        )

    def reduces(self) -> bool:
        name = self.text.partition("(")[0].rpartition(".")[2]
        given = operands(FULL)
        text = f"x.{name}(0)" if name == "logsumexp" else f"x.{name}()"
        given["x"] = given["x"].flatten()
        return bool(call(text, given).numel() == 1)

    def grows(self) -> bool:
        name = self.text.partition("(")[0].rpartition(".")[2]
        argument = {"pow": "2", "cumsum": "0", "cumprod": "0"}.get(name, "")
        found = call(f"x.{name}({argument})", {"x": torch.full((300,), 30000.0).half()})
        return bool(found.isinf().any())

    def squashes(self) -> bool:
        found = call(self.text, {"x": torch.tensor([9.0]).half()})
        return found.item() == 1 and call(self.text, {"x": torch.tensor([9.0])}) < 1

    def vanishes(self) -> bool:
        low, full = (
            call(
                self.text, {"x": torch.tensor([[30.0, -30.0], [-30.0, 30.0]]).to(dtype)}
            )
            for dtype in (torch.float16, torch.float32)
        )
        return bool((low == 0).any() and (full > 0).all())

    def log(self) -> bool:
        bottom = -1.0 if "log1p" in self.text else 0.0
        return bool(call(self.text, {"x": torch.tensor([bottom])}).item() == -torch.inf)

    def floors(self) -> bool:
        given = operands(FULL)
        return bool(
            (call(self.text, given) >= torch.minimum(given["y"], given["w"])).all()
        )

    def like(self) -> bool:
        return self.of(FULL).shape == (4, 4)

    def still(self) -> bool:
        given = operands(FULL)
        given["x"] = given["x"].abs()
        found = call(self.text, given)
        return bool((found > 0).all() and (found < 1.5).all())

    def zeros(self) -> bool:
        return "empty" in self.text or not self.of(FULL).any()

    def scales(self) -> bool:
        return self.same(2, x=2, b=2, i4=2, v=2)

    def adds(self) -> bool:
        return self.same(2, rest=2)

    def multiplies(self) -> bool:
        return self.same(4, rest=2)

    def divides(self) -> bool:
        return self.same(0.5, y=2) and self.same(2, x=2)

    def multiplies_and_adds(self) -> bool:
        name, _, given = self.text.rstrip(")").partition("(")
        first, *factors = given.split(", ")
        twice = (f"2 * {factor}" for factor in factors)
        scaled = call(f"{name}({', '.join([f'4 * {first}', *twice])})", operands(FULL))
        return bool(torch.allclose(4 * self.of(FULL), scaled, rtol=1e-4))

    def ones(self) -> bool:
        return self.same(1, rest=2)


LAWS: dict[str, Callable[[Laws], bool]] = {
    "half": Laws.half, "fp32": Laws.fp32, "promote": Laws.promote, "raises": Laws.is_banned,
    "first": Laws.first, "promoted": Laws.promoted, "chosen": Laws.first, "joined": Laws.promoted,
    "new": Laws.kept, "made": Laws.made, "counted": Laws.counted, "integers": Laws.integers,
    "compares": Laws.compares, "product": Laws.of_one_dtype, "alike": Laws.of_one_dtype,
    "source": Laws.of_one_dtype, "sparse": Laws.no_half, "no-half": Laws.no_half, "wide": Laws.wide,
    "floors": Laws.floors, "view": Laws.shares, "fresh": Laws.fresh, "turns": Laws.turns,
    "still": Laws.still, "each": Laws.each, "reduces": Laws.reduces, "grows": Laws.grows,
    "lacks-half": Laws.lacks_half, "squashes": Laws.squashes, "vanishes": Laws.vanishes,
    "log": Laws.log, "like": Laws.like, "scales": Laws.scales,
    "shaped": Laws.scales, "bounds": Laws.adds, "adds": Laws.adds, "stores": Laws.adds,
    "multiplies": Laws.multiplies, "divides": Laws.divides,
    "multiplies-and-adds": Laws.multiplies_and_adds, "untouched": Laws.untouched,
    "zeros": Laws.zeros, "ones": Laws.ones,
}  # fmt: skip
UNTRIED = frozenset("given fills holds unfit forgets random".split())
"""Words that say how a number, a last digit or a draw is used, and not what torch makes of it."""
RESULTS = frozenset(("first", "promoted", "chosen", "joined"))
ALONE = frozenset(("half", "fp32", "promote", "raises", "no-half", "wide", "sparse"))


def broken() -> Iterator[str]:
    """What is said of an operation and does not hold."""
    for name, text in sorted(calls().items()):
        said = rows()[name]
        laws = Laws(text)
        if said.isdisjoint(("no-half", "wide", "sparse")):
            laws.find_low()
        wanted = said - UNTRIED
        if said.isdisjoint(ALONE) and said & RESULTS:
            wanted |= {"untouched"}
        for word in sorted(wanted):
            try:
                holds = LAWS[word](laws)
            except Exception as error:
                yield f"{name}: {word}: {text}: {type(error).__name__}: {error}"
                continue
            if not holds:
                yield f"{name}: {word}: {text}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    DEVICE = sys.argv[1] if len(sys.argv) > 1 else DEVICE
    torch.set_default_device(DEVICE)
    if DEVICE == "cpu":
        policy.apply()
    print(json.dumps(list(broken())))
