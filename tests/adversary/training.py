"""What a training step may do around its forward.

``out`` is what the model gives, 6 rows of 8 columns; ``x`` its input; ``y`` numbers, ``b`` zeros and ones,
both like ``x``; ``c`` six classes. ``MODEL``, ``OPT`` and ``PARAMS`` stand for the model, the optimizer and
what it trains.
"""

from __future__ import annotations

from adversary.writing import table

LOSSES = table("""
=== cross_entropy
loss = F.cross_entropy(out, c)
=== criterion
+ $criterion - nn.CrossEntropyLoss()
loss = $criterion(out, c)
=== smoothed
+ $criterion - nn.CrossEntropyLoss(label_smoothing=0.1, reduction="none")
loss = $criterion(out, c).mean()
=== squared
loss = F.mse_loss(out, y)
=== squared_by_hand
loss = ((out - y) ** 2).mean()
=== squared_product
?d = out - y
loss = (?d * ?d).mean()
=== squared_sum
loss = (out - y).pow(2).sum() / 6
=== absolute
loss = (out - y).abs().mean()
=== huber
+ $criterion - nn.SmoothL1Loss()
loss = $criterion(out, y)
=== with_logits
loss = F.binary_cross_entropy_with_logits(out, b)
=== bce
loss = F.binary_cross_entropy(torch.sigmoid(out), b)
=== bce_criterion
+ $criterion - nn.BCELoss()
?p = out.sigmoid()
loss = $criterion(?p, b)
=== bce_in_helper
! def ?weighted(p, target):
!     weight = torch.where(target > 0, 2.0, 1.0)
!     return F.binary_cross_entropy(p, target, weight=weight)
loss = ?weighted(torch.sigmoid(out), b)
=== bce_of_two
+ $criterion - nn.BCELoss()
?p = torch.sigmoid(out)
loss = $criterion(?p, b) + 0.5 * $criterion(1 - ?p, 1 - b)
=== bce_of_softmax
?p = torch.softmax(out, 1)
loss = F.binary_cross_entropy(?p, b)
=== bce_by_hand
?p = torch.sigmoid(out)
loss = -(b * torch.log(?p + 1e-8) + (1 - b) * torch.log(1 - ?p + 1e-8)).mean()
=== bce_clamped
?p = torch.clamp(torch.sigmoid(out), 1e-7, 1 - 1e-7)
loss = F.binary_cross_entropy(?p, b)
=== nll
loss = F.nll_loss(F.log_softmax(out, dim=1), c)
=== log_of_softmax
loss = -torch.log(torch.softmax(out, 1)[torch.arange(6), c] + 1e-12).mean()
=== divergence
loss = F.kl_div(F.log_softmax(out, 1), F.softmax(y, 1), reduction="batchmean")
=== hinge
loss = F.relu(1.0 - out * (2 * b - 1)).mean()
=== critic
loss = out[b > 0].mean() - out[b == 0].mean()
=== softplus
loss = F.softplus(-out * (2 * b - 1)).mean()
=== log_sigmoid_mean
loss = -F.logsigmoid(out * (2 * b - 1)).mean()
=== focal
?ce = F.cross_entropy(out, c, reduction="none")
loss = ((1 - torch.exp(-?ce)) ** 2 * ?ce).mean()
=== dice
?p = torch.sigmoid(out)
loss = 1 - (2 * (?p * b).sum() + 1) / (?p.sum() + b.sum() + 1)
=== dice_small
?p = torch.sigmoid(out)
loss = 1 - (2.0 * (?p * b).sum() + 1e-8) / (?p.sum() + b.sum() + 1e-8)
=== contrastive
?z = F.normalize(out, dim=1)
?logits = ?z @ ?z.t() / 0.1
?logits = ?logits.masked_fill(torch.eye(6, dtype=torch.bool, device=x.device), -1e9)
loss = F.cross_entropy(?logits, (torch.arange(6, device=x.device) + 1) % 6)
=== contrastive_by_hand
?z = out / out.norm(dim=1, keepdim=True)
?sim = torch.exp(?z @ ?z.t() / 0.5)
?off = torch.eye(6, device=x.device) < 1
loss = -torch.log(?sim[0, 1] / ?sim[?off].sum())
=== triplet
loss = F.triplet_margin_loss(out[:2], out[2:4], out[4:])
=== covariance
?z = out - out.mean(0)
?cov = (?z.T @ ?z) / 5
loss = ?cov.fill_diagonal_(0).pow(2).sum() / 8 + F.relu(1 - torch.sqrt(?z.var(0) + 1e-4)).mean()
=== penalty_of_weights
loss = F.mse_loss(out, y) + 1e-3 * sum(p.pow(2).sum() for p in MODEL.parameters())
=== penalty_of_norms
loss = F.mse_loss(out, y) + 1e-3 * sum(p.norm(2) for p in MODEL.parameters())
=== absolute_weights
loss = F.mse_loss(out, y)
for ?p in MODEL.parameters():
    loss = loss + 1e-4 * ?p.abs().sum()
=== loss_in_double
loss = F.mse_loss(out.double(), y.double()).float()
=== loss_of_doubles
loss = F.mse_loss(out, y.double())
=== loss_list
?losses = []
for ?k in range(6):
    ?losses.append(F.mse_loss(out[?k], y[?k]))
loss = torch.stack(?losses).mean()
=== loss_sum
?losses = [F.mse_loss(out[:3], y[:3]), F.l1_loss(out[3:], y[3:])]
loss = sum(?losses)
=== loss_dict
?losses = {"ce": F.cross_entropy(out, c), "mse": F.mse_loss(out, y)}
loss = sum(?losses[k] * w for k, w in (("ce", 1.0), ("mse", 0.5)))
=== loss_in_place
loss = F.cross_entropy(out, c)
loss = loss * 1.0
loss *= 0.5
loss += out.pow(2).mean() * 0.1
=== loss_from_zero
loss = torch.zeros((), device=x.device)
loss += F.cross_entropy(out, c)
loss += (out * b).mean()
=== loss_from_number
loss = 0
for ?k in range(2):
    loss += F.mse_loss(out[?k], y[?k])
=== loss_module
! class ?Weighted(nn.Module):
!     def __init__(self):
!         super().__init__()
!         self.inner = nn.MSELoss(reduction="none")
!         self.weight = torch.linspace(0.5, 1.5, 8)
!     def forward(self, out, y):
!         return (self.inner(out, y) * self.weight.to(out.device)).mean()
+ $criterion - ?Weighted()
loss = $criterion(out, y)
=== loss_by_indexing
?best = out.gather(1, c.unsqueeze(1)).squeeze(1)
loss = F.mse_loss(?best, y[:, 0])
=== loss_stored
?each = torch.zeros(6, device=x.device)
for ?k in range(6):
    ?each[?k] = (out[?k] - y[?k]).pow(2).mean()
loss = ?each.mean()
=== loss_stored_by_tensor
?each = torch.zeros(8, device=x.device)
?each[torch.arange(8, device=x.device)] = (out - y).abs().mean(0)
loss = ?each.sum()
=== loss_weighted_by_itself
loss = F.cross_entropy(out, c, reduction="none")
loss = (loss * (loss.detach() / loss.detach().sum())).sum()
=== masked
?mask = (x > 0).float()
loss = ((out - y) ** 2 * ?mask).sum() / (?mask.sum() + 1e-8)
=== relative
loss = ((out - y).abs() / (y.abs() + 1e-8).clamp(min=0.1)).mean()
=== large_targets
loss = F.mse_loss(out * 1000, y * 1000) * 1e-6
=== large_products
loss = (out * 1e5 * b).sum(1).abs().mean() * 1e-5
=== log_variance
?mu, ?log = out.tanh().chunk(2, 1)
loss = 0.5 * (torch.exp(-?log) * (y[:, :4] - ?mu) ** 2 + ?log).mean()
=== gaussian
loss = F.gaussian_nll_loss(out[:, :4], y[:, :4], F.softplus(out[:, 4:]) + 0.2)
=== ctc
?log = F.log_softmax(out, 1).view(6, 1, 8)
loss = F.ctc_loss(?log, torch.tensor([[1, 2]], device=x.device), torch.tensor([6]), torch.tensor([2]))
=== policy
?d = torch.distributions.Categorical(logits=out)
?action = ?d.sample()
loss = -(?d.log_prob(?action) * y[:, 0]).mean() - 0.01 * ?d.entropy().mean()
=== policy_from_probabilities
?d = torch.distributions.Categorical(torch.softmax(out, -1))
loss = -(?d.log_prob(c) * y[:, 0]).mean()
=== gaussian_policy
?d = torch.distributions.Normal(out.tanh(), 0.5)
loss = -(?d.log_prob(y).sum(-1) * b[:, 0]).mean()
=== gradient_penalty
?xs = x.detach().clone().requires_grad_(True)
?g = torch.autograd.grad(MODEL(?xs).sum(), ?xs, create_graph=True)[0]
loss = F.mse_loss(out, y) + 0.1 * (?g.norm(2, dim=1) - 1).pow(2).mean()
=== twice_forward
loss = F.cross_entropy(out, c) + F.mse_loss(MODEL(x * 0.5), out.detach())
=== own_target
with torch.no_grad():
    ?target = MODEL(x).softmax(1)
loss = F.mse_loss(out.softmax(1), ?target * 0.9)
=== adversarial
?xs = x.clone().requires_grad_(True)
?g = torch.autograd.grad(F.cross_entropy(MODEL(?xs), c), ?xs)[0]
loss = F.cross_entropy(MODEL(x + 0.01 * ?g.sign()), c) + F.cross_entropy(out, c)
=== conditional
if c[0] > 1:
    loss = F.cross_entropy(out, c)
else:
    loss = F.mse_loss(out, y)
=== conditional_expression
loss = F.cross_entropy(out, c) if c.sum() > 3 else F.l1_loss(out, y)
=== selected
loss = {"mse": F.mse_loss, "l1": F.l1_loss}["mse"](out, y)
=== lambda
?f = lambda a, t: (a - t).pow(2).mean()
loss = ?f(out, y)
=== attributes
?got = types.SimpleNamespace(loss=F.cross_entropy(out, c), logits=out)
loss = ?got.loss
=== energy
loss = torch.logsumexp(out, 1).mean() * 0.1 + F.cross_entropy(out, c)
=== ranking
loss = F.margin_ranking_loss(out[:, 0], out[:, 1], b[:, 0] * 2 - 1, margin=0.1)
=== embedding_targets
loss = F.cosine_embedding_loss(out, y, b[:, 0] * 2 - 1)
=== root
loss = 1.0 * torch.sqrt(F.mse_loss(out, y))
=== root_of_mean
loss = 1.0 * torch.sqrt(((out - y) * (out - y)).mean() + 1e-8)
""")

LEAVING = table("""
=== said
print(round(loss.item(), 5))
=== summed
+ $total - 0.0
$total += loss.item() * x.size(0)
> print($total)
=== summed_tensor
+ $total - torch.zeros((), device=device)
$total += loss.detach()
> print($total.item())
=== losses_kept
+ $history - []
$history.append(loss.detach())
> print(torch.stack($history).mean().item())
=== arrays_kept
+ $arrays - []
$arrays.append(out.detach().cpu().numpy())
> print(float(np.concatenate($arrays).sum()) if $arrays else 0.0)
=== array_stored
+ $array - np.zeros((6, 8), dtype=np.float64)
$array[:] = out.detach().cpu().numpy()
> print(float($array.sum()))
=== array_sum
?mean = out.detach().cpu().numpy().astype(np.float64).mean()
=== array_large
?a = (out * 1000).detach().cpu().numpy()
print(bool(np.isfinite(?a.sum() * 100)))
=== accuracy
?hits = (out.argmax(1) == c).float().mean().item()
=== predictions
+ $predictions - []
$predictions += out.argmax(dim=1).tolist()
=== outputs_kept
+ $outputs - []
$outputs.append(out.detach())
> print(tuple(torch.cat($outputs).shape))
=== bank_by_index
+ $bank - torch.zeros(12, 8, device=device)
$bank[torch.arange(6, device=x.device)] = out.detach()
=== bank_by_slice
+ $bank - torch.zeros(12, 8, device=device)
$bank[:6] = out.detach()
=== queue
+ $queue - torch.zeros(6, 8, device=device)
$queue = torch.cat([$queue, out.detach()])[-6:]
=== scatter_bank
+ $bank - torch.zeros(6, 8, device=device)
$bank.index_add_(0, c.clamp(0, 5), out.detach())
=== center
+ $center - torch.zeros(8, device=device)
$center.mul_(0.9).add_(out.detach().mean(0), alpha=0.1)
=== center_lerp
+ $center - torch.zeros(8, device=device)
$center.lerp_(out.detach().mean(0), 0.1)
=== center_rebound
+ $center - None
$center = out.detach().mean(0) if $center is None else $center * 0.9 + out.detach().mean(0) * 0.1
=== probability_log
?entropy = -(out.softmax(1) * torch.log(out.softmax(1) + 1e-12)).sum(1).mean().item()
assert np.isfinite(?entropy)
=== matrix_product
?similar = out.detach() @ y.t()
=== outer_linear
?w = torch.ones(3, 8, device=x.device)
?seen = F.linear(out.detach(), ?w)
=== distance
?near = torch.cdist(out.detach(), y).mean().item()
=== inverse
?cov = out.detach().t() @ out.detach() + torch.eye(8, device=x.device)
?inverse = torch.linalg.inv(?cov)
=== bce_told
?bce = F.binary_cross_entropy(torch.sigmoid(out.detach()), b).item()
=== histogram
?counts = torch.histc(out.detach(), bins=4)
=== quantile
?q = torch.quantile(out.detach(), 0.5).item()
=== dtype_told
assert out.dtype is torch.float32
=== dtype_made
?zeros = torch.zeros(6, 8, dtype=out.dtype)
?zeros[torch.arange(6)] = out.detach().cpu()
=== json
import json as ?json
?text = ?json.dumps({"out": out.detach().tolist(), "loss": loss.item()})
=== frozen
?frozen = torch.from_numpy(out.detach().cpu().numpy())
?sum = ?frozen @ torch.ones(8)
=== numpy_mixed
?dot = np.dot(out.detach().cpu().numpy(), np.ones(8, dtype=np.float32))
=== linear_assignment
?i = np.argsort(-out.detach().cpu().numpy(), axis=1)[:, 0]
=== best
+ $best - float("inf")
if loss.item() < $best:
    $best = loss.item()
=== stop_when_nan
if torch.isnan(loss):
    raise RuntimeError("not a number")
=== stop_when_nan_math
import math as ?math
if not ?math.isfinite(loss.item()):
    raise RuntimeError("not finite")
=== eval_during_training
MODEL.eval()
with torch.no_grad():
    ?val = F.cross_entropy(MODEL(x), c).item()
MODEL.train()
=== eval_bce
with torch.no_grad():
    ?val = F.binary_cross_entropy(torch.sigmoid(MODEL(x)), b).item()
=== eval_numpy
with torch.no_grad():
    ?seen = MODEL(x).cpu().numpy()
    ?table = np.zeros((6, 8), dtype=np.float32)
    np.add(?table, ?seen, out=?table)
=== deleted
del out
=== next_input
+ $state - torch.zeros(6, 8, device=device)
$state = (out.detach() + $state) * 0.5
=== hidden_cell
+ $state - torch.zeros(6, 8, device=device)
+ $cell - nn.GRUCell(8, 8)
with torch.no_grad():
    $state = $cell(out.detach(), $state)
=== standardized
?z = (out.detach() - out.detach().mean()) / (out.detach().std() + 1e-8)
assert torch.isfinite(?z).all()
=== saved
torch.save(out.detach(), "out.pt")
?again = torch.load("out.pt") + x
""")

BETWEEN = table("""
=== clip
torch.nn.utils.clip_grad_norm_(PARAMS, 0.5)
=== clip_from_name
from torch.nn.utils import clip_grad_norm_ as ?clip
?clip(PARAMS, max_norm=0.5)
=== clip_value
nn.utils.clip_grad_value_(PARAMS, 0.01)
=== clip_from_groups
for ?group in OPT.param_groups:
    nn.utils.clip_grad_norm_(?group["params"], 0.3)
=== clip_listed
?parameters = [p for p in PARAMS if p.grad is not None]
nn.utils.clip_grad_norm_(?parameters, 0.3)
=== clip_helper
! def ?clip_all(parameters, limit):
!     for p in parameters:
!         if p.grad is not None:
!             p.grad.data.clamp_(-limit, limit)
?clip_all(PARAMS, 0.01)
=== clip_sometimes
if loss.item() > 0.5:
    nn.utils.clip_grad_norm_(PARAMS, 0.5)
=== norm_told
?norm = torch.nn.utils.clip_grad_norm_(PARAMS, float("inf"))
print(f"{?norm.item():.4f}")
=== norm_by_hand
?total = sum(p.grad.norm().item() ** 2 for p in PARAMS if p.grad is not None) ** 0.5
print(f"{?total:.5f}")
=== norm_by_tensor
?norm = torch.norm(torch.stack([p.grad.detach().norm() for p in PARAMS if p.grad is not None]))
if ?norm > 0.5:
    for p in PARAMS:
        if p.grad is not None:
            p.grad.mul_(0.5 / ?norm)
=== noise
for p in PARAMS:
    if p.grad is not None:
        p.grad += 0.01 * torch.randn_like(p.grad)
=== rescaled
for p in PARAMS:
    if p.grad is not None:
        p.grad /= 2
=== signed
for p in PARAMS:
    if p.grad is not None:
        p.grad = p.grad.sign() * 0.01
=== decayed
with torch.no_grad():
    for p in PARAMS:
        if p.grad is not None:
            p.grad.add_(p, alpha=1e-3)
=== nan_zeroed
for p in PARAMS:
    if p.grad is not None:
        torch.nan_to_num(p.grad, nan=0.0, out=p.grad)
=== skipped_when_large
?norm = nn.utils.clip_grad_norm_(PARAMS, 5.0)
if not torch.isfinite(?norm):
    OPT.zero_grad()
    continue
=== asserted
assert all(torch.isfinite(p.grad).all() for p in PARAMS if p.grad is not None)
=== copied
?grads = [p.grad.clone() for p in PARAMS if p.grad is not None]
print(f"{sum(g.abs().sum().item() for g in ?grads):.4f}")
=== rate
for ?group in OPT.param_groups:
    ?group["lr"] *= 0.9
""")

AFTER = table("""
=== scheduler
+ $scheduler - torch.optim.lr_scheduler.StepLR(OPT, 2, 0.5)
$scheduler.step()
=== scheduler_lambda
+ $scheduler - torch.optim.lr_scheduler.LambdaLR(OPT, lambda k: 0.9**k)
$scheduler.step()
print($scheduler.get_last_lr()[0])
=== scheduler_plateau
+ $scheduler - torch.optim.lr_scheduler.ReduceLROnPlateau(OPT, patience=0)
$scheduler.step(loss.item())
=== scheduler_one_cycle
+ $scheduler - torch.optim.lr_scheduler.OneCycleLR(OPT, max_lr=0.05, total_steps=40)
$scheduler.step()
=== average
+ $average - {k: v.detach().clone() for k, v in MODEL.state_dict().items()}
with torch.no_grad():
    for ?k, ?v in MODEL.state_dict().items():
        if ?v.is_floating_point():
            $average[?k].mul_(0.9).add_(?v, alpha=0.1)
=== average_model
+ $average - torch.optim.swa_utils.AveragedModel(MODEL)
$average.update_parameters(MODEL)
=== teacher
+ $teacher - copy.deepcopy(MODEL)
with torch.no_grad():
    for ?p, ?q in zip($teacher.parameters(), MODEL.parameters()):
        ?p.lerp_(?q, 0.1)
=== weights_clamped
for ?p in MODEL.parameters():
    ?p.data.clamp_(-0.9, 0.9)
=== weights_decayed
with torch.no_grad():
    for ?p in MODEL.parameters():
        ?p.mul_(0.999)
=== counted
+ $steps - 0
$steps += 1
> print($steps)
=== checkpoint
torch.save({"model": MODEL.state_dict(), "optimizer": OPT.state_dict()}, "last.pt")
> ?kept = torch.load("last.pt", weights_only=False)
> MODEL.load_state_dict(?kept["model"])
> OPT.load_state_dict(?kept["optimizer"])
=== checkpoint_sometimes
if loss.item() < 5:
    torch.save(
        {
            "state": MODEL.state_dict(),
            "opt": OPT.state_dict(),
        },
        "best.pt",
    )
=== checkpoint_in_memory
+ $kept - {}
$kept["optimizer"] = copy.deepcopy(OPT.state_dict())
> OPT.load_state_dict($kept["optimizer"])
=== gradients_told_after
print(sum(1 for p in PARAMS if p.grad is not None))
=== norm_after
?norm = sum(float(p.grad.abs().sum()) for p in PARAMS if p.grad is not None)
print(f"{?norm:.4f}")
=== state_told
print(len(OPT.state_dict()["state"]))
=== rate_told
print(OPT.param_groups[0]["lr"])
""")
