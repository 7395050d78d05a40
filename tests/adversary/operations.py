"""What a forward may do: each entry makes an ``h`` of 6 rows and 8 columns of another.

``x`` is the input, of the same size, and fp32. Numbers stay about as large as they were.
"""

from __future__ import annotations

from adversary.writing import table

PLAIN = table("""
=== linear
+ $fc = nn.Linear(8, 8)
h = $fc(h)
=== linear_relu
+ $fc = nn.Linear(8, 8)
h = F.relu($fc(h))
=== sequential
+ $net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 8))
h = $net(h)
=== residual
+ $fc = nn.Linear(8, 8)
h = x + $fc(h)
=== parameter
+ $w : torch.randn(8, 8) * 0.3
+ $b : torch.zeros(8)
h = h @ $w + $b
=== matmul
+ $w : torch.randn(8, 8) * 0.3
h = torch.matmul(h, $w.t())
=== functional
+ $w : torch.randn(8, 8) * 0.3
h = F.linear(h, $w)
=== einsum
+ $w : torch.randn(8, 8) * 0.3
h = torch.einsum("ni,ij->nj", h, $w)
=== convolution
+ $conv = nn.Conv1d(1, 2, 3, padding=1)
h = $conv(h.unsqueeze(1)).mean(1)
=== layer_list
+ $layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
for ?layer in $layers:
    h = torch.tanh(?layer(h))
=== layer_dict
+ $layers = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.Linear(8, 8)})
h = sum(?layer(h) for ?layer in $layers.values())
=== norm
+ $fc = nn.Linear(8, 8)
+ $norm = nn.LayerNorm(8)
h = $norm($fc(h))
=== dropout
+ $fc = nn.Linear(8, 8)
+ $drop = nn.Dropout(0.2)
h = $drop($fc(h))
=== gate
+ $a = nn.Linear(8, 8)
+ $b = nn.Linear(8, 8)
h = torch.sigmoid($a(h)) * $b(h)
=== attention
+ $q = nn.Linear(8, 8)
+ $k = nn.Linear(8, 8)
?scores = $q(h) @ $k(h).t() / 8**0.5
h = torch.softmax(?scores, dim=-1) @ h
=== heads
+ $attention = nn.MultiheadAttention(8, 2, batch_first=True)
?out, _ = $attention(h[None], h[None], h[None])
h = ?out[0]
=== gru
+ $gru = nn.GRU(8, 8, batch_first=True)
?out, ?last = $gru(h.view(2, 3, 8))
h = ?out.reshape(6, 8) + ?last[0][:1]
=== shared
+ $fc = nn.Linear(8, 8)
h = $fc(torch.tanh($fc(h)))
""")

HAZARDS = table("""
=== masked_fill
+ $fc = nn.Linear(8, 8)
?scores = $fc(h).masked_fill(x > 0, -1e9)
h = torch.softmax(?scores, dim=-1) + h
=== masked_fill_in_place
+ $fc = nn.Linear(8, 8)
?scores = $fc(h)
?scores.masked_fill_(x.abs() < 0.3, float(-1e30))
h = torch.softmax(?scores, 1) * 4
=== masked_by_constant
! ?NEGATIVE = -1e9
+ $fc = nn.Linear(8, 8)
h = F.softmax($fc(h).masked_fill(x > 0, ?NEGATIVE), dim=1) + x
=== where_constant
+ $fc = nn.Linear(8, 8)
?scores = torch.where(x > 0, $fc(h), torch.tensor(-1e9, device=x.device))
h = torch.softmax(?scores, dim=-1) + h
=== where_number
+ $fc = nn.Linear(8, 8)
?scores = torch.where(x > -2, $fc(h), -1e10)
h = torch.softmax(?scores, dim=-1) + h
=== additive_mask
+ $fc = nn.Linear(8, 8)
?scores = $fc(h) + (1.0 - (x > -1).float()) * -1e9
h = torch.softmax(?scores, dim=-1) + h
=== mask_buffer
+ $fc = nn.Linear(8, 8)
+ $mask ~ torch.triu(torch.full((8, 8), float("-inf")), diagonal=1)
?scores = $fc(h) + $mask[:6]
h = torch.softmax(?scores, dim=-1) + h
=== finfo
+ $fc = nn.Linear(8, 8)
?scores = $fc(h)
?scores = ?scores.masked_fill(x > 1, torch.finfo(torch.float32).min)
h = ?scores.softmax(-1) + h
=== finfo_own
+ $fc = nn.Linear(8, 8)
?scores = $fc(h)
?scores = ?scores.masked_fill(x > 1, torch.finfo(?scores.dtype).min)
h = ?scores.softmax(-1) + h
=== store_mask
+ $fc = nn.Linear(8, 8)
?scores = $fc(h)
?scores[:, 0] = -1e9
h = torch.softmax(?scores, -1) * 3
=== full_like
+ $fc = nn.Linear(8, 8)
?scores = $fc(h)
?low = torch.full_like(?scores, -1e9)
h = torch.softmax(torch.where(x > 1, ?low, ?scores), -1) * 3
=== new_full
+ $fc = nn.Linear(8, 8)
?scores = $fc(h)
?low = ?scores.new_full((6, 8), -1e8)
h = torch.softmax(torch.where(x > 1, ?low, ?scores), -1) * 3
=== pad
+ $fc = nn.Linear(8, 7)
h = torch.softmax(F.pad($fc(h), (0, 1), value=-1e9), -1) * 3
=== epsilon_norm
+ $fc = nn.Linear(8, 8)
?z = F.relu($fc(h) - 9)
h = ?z / (?z.norm(dim=1, keepdim=True) + 1e-8) + h
=== epsilon_mean
+ $fc = nn.Linear(8, 8)
?z = F.relu($fc(h) - 9)
h = ?z / (?z.mean(dim=1, keepdim=True) + 1e-10) + h
=== epsilon_std
+ $fc = nn.Linear(8, 8)
?z = F.relu($fc(h) - 9)
h = (?z - ?z.mean()) / (?z.std() + 1e-8) + h
=== epsilon_log
+ $fc = nn.Linear(8, 8)
?p = torch.relu($fc(h) - 9)
h = h + torch.log(?p + 1e-12) * 0.01
=== epsilon_keyword
+ $fc = nn.Linear(8, 8)
! def ?unit(value, eps=1e-12):
!     return value / (value.abs().amax(dim=1, keepdim=True) + eps)
h = ?unit(F.relu($fc(h) - 9)) + h
=== epsilon_clamp
+ $fc = nn.Linear(8, 8)
?p = torch.sigmoid($fc(h) * 9)
h = h + (?p.clamp(1e-8, 1 - 1e-8) / (1 - ?p).clamp(min=1e-8)).log() * 0.05
=== epsilon_max
+ $fc = nn.Linear(8, 8)
?z = F.relu($fc(h) - 9)
h = ?z / torch.max(?z.amax(1, keepdim=True), torch.tensor(1e-9, device=x.device)) + h
=== epsilon_sqrt
+ $fc = nn.Linear(8, 8)
?z = F.relu($fc(h) - 9)
h = h + torch.sqrt(?z * ?z + 1e-12)
=== epsilon_rsqrt
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
?z = ?z - ?z
h = h + ?z * torch.rsqrt(?z.var(1, keepdim=True) + 1e-9)
=== sum_many
+ $fc = nn.Linear(8, 8)
h = h + ($fc(h) * 400).abs().mean() * 1e-3
=== square_large
+ $fc = nn.Linear(8, 8)
?z = $fc(h) * 300
h = h + (?z * ?z).mean() * 1e-6
=== square_sum
+ $fc = nn.Linear(8, 8)
?z = $fc(h) * 100.0
?energy = (?z * ?z).sum(dim=1, keepdim=True)
h = h + ?energy * 1e-6
=== gram
+ $fc = nn.Linear(8, 8)
?z = $fc(h) * 200
h = h + (?z.t() @ ?z).mean() * 1e-6
=== scaled_up
+ $fc = nn.Linear(8, 8)
h = ($fc(h) * 1e6).tanh()
=== scaled_by_constant
! ?LARGE = 1e5
+ $fc = nn.Linear(8, 8)
h = torch.tanh($fc(h) * ?LARGE)
=== power
+ $fc = nn.Linear(8, 8)
h = h + $fc(h * 20).pow(4).mean() * 1e-7
=== exponential
+ $fc = nn.Linear(8, 8)
h = h + torch.exp(-$fc(h) ** 2)
=== variance
+ $fc = nn.Linear(8, 8)
?z = $fc(h) * 30
h = h + ?z.var(dim=1, keepdim=True) * 1e-4
=== normalize
+ $fc = nn.Linear(8, 8)
h = F.normalize($fc(h), dim=1) * 2
=== cosine
+ $fc = nn.Linear(8, 8)
h = h * F.cosine_similarity($fc(h), x, dim=1).unsqueeze(1)
=== distances
+ $fc = nn.Linear(8, 8)
h = torch.cat([h, torch.cdist($fc(h), x)], dim=1)[:, :8] * 0.5
=== log_sigmoid
+ $fc = nn.Linear(8, 8)
h = h + torch.log(torch.sigmoid($fc(h) * 5))
=== probability
+ $fc = nn.Linear(8, 8)
?p = torch.sigmoid($fc(h))
h = h - F.binary_cross_entropy(?p, (x > 0).float())
=== cumulative
+ $fc = nn.Linear(8, 8)
h = torch.cumsum($fc(h), dim=1) * 0.3
""")

STORES = table("""
=== index_store
+ $fc = nn.Linear(8, 8)
?out = torch.zeros(6, 8, device=x.device)
?rows = torch.arange(0, 6, 2, device=x.device)
?out[?rows] = $fc(h[?rows])
h = h + ?out
=== mask_store
+ $fc = nn.Linear(8, 8)
?out = x.clone()
?mask = x[:, 0] > 0
?out[?mask] = $fc(h)[?mask]
h = ?out
=== slice_store
+ $fc = nn.Linear(8, 8)
?out = torch.zeros_like(x)
?out[:3] = $fc(h[:3])
h = ?out + h
=== index_add_store
+ $fc = nn.Linear(8, 8)
?out = torch.zeros(6, 8, device=h.device)
?out.index_add_(0, torch.tensor([0, 0, 1, 2, 3, 5], device=h.device), $fc(h))
h = ?out
=== index_add_new
+ $fc = nn.Linear(8, 8)
h = x.index_add(0, torch.tensor([0, 0, 1, 2, 3, 5], device=h.device), $fc(h))
=== scatter_add_store
+ $fc = nn.Linear(8, 8)
?out = torch.zeros(6, 8, device=h.device)
?out.scatter_add_(1, torch.zeros(6, 8, dtype=torch.long, device=h.device), $fc(h))
h = h + ?out * 0.1
=== scatter_store
+ $fc = nn.Linear(8, 8)
?out = x.new_zeros(6, 8)
?out.scatter_(1, torch.arange(8, device=h.device).expand(6, 8), $fc(h))
h = ?out
=== scatter_new
+ $fc = nn.Linear(8, 8)
h = x.scatter(1, torch.arange(8, device=h.device).expand(6, 8), $fc(h))
=== scatter_reduce
+ $fc = nn.Linear(8, 8)
?index = torch.arange(8, device=h.device).expand(6, 8)
h = torch.zeros_like(x).scatter_reduce(1, ?index, $fc(h), reduce="sum")
=== masked_scatter
+ $fc = nn.Linear(8, 8)
h = x.masked_scatter(x > 0, $fc(h))
=== index_copy
+ $fc = nn.Linear(8, 8)
h = x.index_copy(0, torch.tensor([1, 3], device=x.device), $fc(h[:2]))
=== index_put
+ $fc = nn.Linear(8, 8)
?out = torch.zeros(6, 8, device=x.device)
h = ?out.index_put((torch.arange(6, device=x.device),), $fc(h))
=== index_put_in_place
+ $fc = nn.Linear(8, 8)
?out = torch.zeros(6, 8, device=x.device)
?out.index_put_((torch.arange(6, device=x.device),), $fc(h), accumulate=True)
h = ?out
=== add_in_place
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
?z += x
h = ?z
=== add_into_input
+ $fc = nn.Linear(8, 8)
?z = x * 1.0
?z += $fc(h)
h = ?z
=== addmm_in_place
+ $w : torch.randn(8, 8) * 0.3
?z = x.clone()
?z.addmm_(h, $w)
h = ?z
=== addmm
+ $w : torch.randn(8, 8) * 0.3
h = torch.addmm(x, h, $w)
=== baddbmm
+ $w : torch.randn(1, 8, 8) * 0.3
h = torch.baddbmm(x[None], h[None], $w)[0]
=== baddbmm_in_place
+ $w : torch.randn(1, 8, 8) * 0.3
h = x[None].clone().baddbmm_(h[None], $w)[0]
=== lerp
+ $fc = nn.Linear(8, 8)
h = torch.lerp(x, $fc(h), 0.5)
=== lerp_method
+ $fc = nn.Linear(8, 8)
h = $fc(h).lerp(x, 0.3)
=== cross
+ $fc = nn.Linear(8, 6)
h = h + torch.cross($fc(h).view(6, 2, 3), x[:, :6].reshape(6, 2, 3), dim=2).mean((1, 2)).unsqueeze(1)
=== linalg_cross
+ $fc = nn.Linear(8, 3)
h = h + torch.linalg.cross($fc(h), x[:, :3]).mean(1, keepdim=True)
=== bmm_mixed
+ $fc = nn.Linear(8, 8)
h = torch.bmm($fc(h).unsqueeze(0), torch.eye(8, device=x.device).unsqueeze(0))[0]
=== inner_in_fp32
+ $fc = nn.Linear(8, 8)
h = h + torch.inner($fc(h), x).mean()
=== outer
+ $fc = nn.Linear(8, 1)
h = h + torch.outer($fc(h)[:, 0], x[0])
=== copy
+ $fc = nn.Linear(8, 8)
?out = torch.empty(6, 8, device=x.device)
?out.copy_($fc(h))
h = ?out
=== cat
+ $fc = nn.Linear(8, 4)
h = torch.cat((x[:, :4], $fc(h)), dim=-1)
=== stack
+ $fc = nn.Linear(8, 8)
h = torch.stack([x, $fc(h)]).mean(0)
=== buffer_update
+ $fc = nn.Linear(8, 8)
+ $memory ~ torch.zeros(6, 8)
?z = $fc(h)
with torch.no_grad():
    $memory[:3] = ?z[:3].detach()
h = ?z + $memory
=== buffer_index
+ $fc = nn.Linear(8, 8)
+ $memory ~ torch.zeros(6, 8)
?z = $fc(h)
$memory[torch.tensor([0, 2], device=x.device)] = ?z[:2].detach()
h = ?z
=== buffer_ema
+ $fc = nn.Linear(8, 8)
+ $center ~ torch.zeros(8)
?z = $fc(h)
$center.mul_(0.9).add_(?z.detach().mean(0), alpha=0.1)
h = ?z - $center
=== buffer_lerp
+ $fc = nn.Linear(8, 8)
+ $center ~ torch.zeros(8)
?z = $fc(h)
$center.lerp_(?z.detach().mean(0), 0.1)
h = ?z - $center
=== buffer_rebound
+ $fc = nn.Linear(8, 8)
+ $center ~ torch.zeros(8)
?z = $fc(h)
$center = 0.9 * $center + 0.1 * ?z.detach().mean(0)
h = ?z - $center
=== buffer_copied
+ $fc = nn.Linear(8, 8)
+ $memory ~ torch.zeros(6, 8)
?z = $fc(h)
h = ?z + $memory.to(?z)
$memory.copy_(?z.detach())
=== codebook
+ $fc = nn.Linear(8, 8)
+ $codes : torch.randn(5, 8)
?z = $fc(h)
?d = ?z.pow(2).sum(1, keepdim=True) - 2 * ?z @ $codes.t() + $codes.pow(2).sum(1)
h = ?z + ($codes[?d.argmin(1)] - ?z).mean() * 1e-3
=== statistics
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
?moments = torch.zeros(2, 8, device=x.device)
?moments[0], ?moments[1] = ?z.mean(0), ?z.std(0)
h = ?z - ?moments[0]
""")

TYPES = table("""
=== gru_cell
+ $cell = nn.GRUCell(8, 8)
?state = torch.zeros(6, 8, device=x.device)
for _ in range(2):
    ?state = $cell(h, ?state)
h = ?state
=== lstm_cell
+ $cell = nn.LSTMCell(8, 8)
?a, ?b = torch.zeros(6, 8, device=x.device), torch.zeros(6, 8, device=x.device)
for _ in range(2):
    ?a, ?b = $cell(h, (?a, ?b))
h = ?a + ?b
=== rows_of_states
+ $cell = nn.RNNCell(8, 8)
?states = torch.zeros(3, 6, 8, device=x.device)
?state = x
for ?t in range(3):
    ?state = $cell(h, ?state)
    ?states[?t] = ?state
h = ?states.mean(0)
=== double
+ $fc = nn.Linear(8, 8)
h = ($fc(h).double() * 1.5).float()
=== double_stays
+ $fc = nn.Linear(8, 8)
?z = $fc(h).double()
h = h + ?z.mean().to(h.dtype)
=== float_call
+ $fc = nn.Linear(8, 8)
h = $fc(h).float()
=== type_as
+ $fc = nn.Linear(8, 8)
h = $fc(h).type_as(x) + x
=== to_other
+ $fc = nn.Linear(8, 8)
h = x.to($fc(h)) + h
=== dtype_made
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
?out = torch.zeros(6, 8, dtype=?z.dtype, device=?z.device)
?out[torch.arange(6)] = ?z
h = ?out
=== dtype_of_input
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
?out = torch.zeros(6, 8, dtype=x.dtype, device=?z.device)
?out[torch.arange(6)] = ?z
h = ?out
=== view_dtype
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
h = ?z + ?z.detach().view(torch.int32).sum() * 0
=== assert_dtype
+ $fc = nn.Linear(8, 8)
h = $fc(h)
assert h.dtype == torch.float32
=== dtype_branch
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
if ?z.dtype == torch.float32:
    ?z = ?z * 2
h = ?z
=== isinstance_legacy
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
if isinstance(?z, (torch.FloatTensor, torch.cuda.FloatTensor)):
    ?z = ?z * 1.5
h = ?z
=== numpy_constant
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
h = ?z * float(np.sqrt(?z.detach().cpu().numpy().var() + 1.0))
=== numpy_there_and_back
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
?weights = torch.from_numpy(np.abs(?z.detach().cpu().numpy())).to(x.device)
h = ?z * ?weights
=== numpy_stored
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
?table = np.zeros((6, 8), dtype=np.float32)
?table[:] = ?z.detach().cpu().numpy()
h = ?z + torch.tensor(?table, device=x.device) * 0.1
=== tensor_of_item
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
h = ?z / torch.tensor(?z.detach().abs().max().item(), device=x.device)
=== integer_mask
+ $fc = nn.Linear(8, 8)
h = $fc(h) * (x > 0)
=== inverse
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
?cov = ?z.t() @ ?z / 6 + torch.eye(8, device=x.device)
h = h @ torch.inverse(?cov)
=== cholesky
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
?cov = ?z.t() @ ?z / 6 + torch.eye(8, device=x.device)
h = h + torch.linalg.cholesky(?cov).diagonal().log().sum() * 0.1
=== solve
+ $fc = nn.Linear(8, 8)
?a = torch.eye(8, device=x.device) + $fc(h).t() @ $fc(h) * 0.1
h = torch.linalg.solve(?a, h.t()).t()
=== determinant
+ $w : torch.eye(8) + torch.randn(8, 8) * 0.1
h = h @ $w + torch.slogdet($w)[1]
=== fourier
+ $fc = nn.Linear(8, 6)
h = h + torch.fft.rfft($fc(h), dim=1).abs().mean(1, keepdim=True)
=== quantile
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
h = ?z - torch.quantile(?z, 0.5, dim=1, keepdim=True)
=== median
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
h = ?z - ?z.median(dim=1, keepdim=True).values.detach()
=== multinomial
+ $fc = nn.Linear(8, 8)
?p = torch.softmax($fc(h), 1)
h = h + ?p + torch.multinomial(?p.detach(), 1) * 0
=== histogram
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
h = ?z * (1 + torch.histc(?z.detach(), bins=4, min=-9, max=9).max() / 480)
=== bincount
+ $fc = nn.Linear(8, 8)
?z = torch.softmax($fc(h), 1)
h = h + torch.bincount(?z.argmax(1), weights=?z.detach().amax(1) * 0, minlength=8)[:8].float()
=== searchsorted
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
h = ?z + torch.bucketize(?z.detach(), torch.linspace(-50, -40, 3, device=x.device)) * 0.01
=== distribution
+ $fc = nn.Linear(8, 8)
?d = torch.distributions.Normal($fc(h), torch.ones(6, 8, device=x.device))
h = h + ?d.log_prob(x) * 0.1
=== distribution_sample
+ $mu = nn.Linear(8, 8)
+ $log = nn.Linear(8, 8)
?d = torch.distributions.Normal($mu(h), $log(h).exp())
h = ?d.rsample()
=== multivariate
+ $fc = nn.Linear(8, 8)
?d = torch.distributions.MultivariateNormal($fc(h), torch.eye(8, device=x.device))
h = h + ?d.log_prob(x).unsqueeze(1) * 0.01
=== categorical
+ $fc = nn.Linear(8, 8)
?d = torch.distributions.Categorical(logits=$fc(h))
h = h + ?d.entropy().unsqueeze(1)
=== reparametrize
+ $mu = nn.Linear(8, 8)
+ $log = nn.Linear(8, 8)
?mu, ?log = $mu(h), $log(h)
h = ?mu + torch.exp(0.5 * ?log) * torch.randn_like(?mu)
=== noise
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
h = ?z + torch.randn(?z.shape, device=?z.device) * 0.1
=== noise_like
+ $fc = nn.Linear(8, 8)
h = $fc(h)
h = h + 0.1 * torch.empty_like(h).normal_()
=== ones_like_sum
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
?total = torch.zeros_like(?z[0])
for ?row in ?z:
    ?total += ?row
h = ?z + ?total * 0.1
=== positions
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
?angle = torch.arange(6, device=x.device).unsqueeze(1) * 1000.0
h = ?z + torch.sin(?angle.type_as(?z) + 0.5)
=== rounding
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
h = ?z + (torch.round(x) - x).detach()
=== rounding_function
! class ?Rounded(torch.autograd.Function):
!     @staticmethod
!     def forward(ctx, value, other):
!         ctx.save_for_backward(other)
!         return value * other.sign()
!     @staticmethod
!     def backward(ctx, gradient):
!         (other,) = ctx.saved_tensors
!         return gradient * other.sign(), None
+ $fc = nn.Linear(8, 8)
h = ?Rounded.apply($fc(h), x)
=== product_function
! class ?Product(torch.autograd.Function):
!     @staticmethod
!     def forward(ctx, value, weight):
!         ctx.save_for_backward(value, weight)
!         return value.mm(weight)
!     @staticmethod
!     def backward(ctx, gradient):
!         value, weight = ctx.saved_tensors
!         return gradient.mm(weight.t()), value.t().mm(gradient)
+ $w : torch.randn(8, 8) * 0.3
h = ?Product.apply(h, $w)
=== clamped_gradient
! class ?Clamp(torch.autograd.Function):
!     @staticmethod
!     def forward(ctx, value):
!         return value.view_as(value)
!     @staticmethod
!     def backward(ctx, gradient):
!         return gradient.clamp(-0.01, 0.01)
+ $fc = nn.Linear(8, 8)
h = ?Clamp.apply($fc(h))
=== gradient_hook
+ $fc = nn.Linear(8, 8)
h = $fc(h)
if h.requires_grad:
    h.register_hook(lambda g: g * 0.5)
=== gradient_hook_clamp
+ $fc = nn.Linear(8, 8)
h = $fc(h)
if h.requires_grad:
    h.register_hook(lambda g: g.clamp(-1e-3, 1e-3))
=== detach_twin
+ $fc = nn.Linear(8, 8)
with torch.no_grad():
    ?target = $fc(h)
h = $fc(h) - ?target * 0.5
=== checkpointed
+ $fc = nn.Linear(8, 8)
h = torch.utils.checkpoint.checkpoint($fc, h, use_reentrant=False)
=== embedding
+ $table = nn.Embedding(5, 8)
h = h + $table((x[:, 0] > 0).long())
=== one_hot
+ $fc = nn.Linear(8, 8)
?hot = F.one_hot((x[:, 0] > 0).long() + 1, 8).float()
h = $fc(h) + ?hot
=== one_hot_matmul
+ $fc = nn.Linear(8, 8)
?hot = F.one_hot(h.argmax(1) * 0, 8).to(h.dtype)
h = $fc(h) + ?hot @ torch.ones(8, 8, device=x.device)
=== interpolate
+ $fc = nn.Linear(8, 4)
h = F.interpolate($fc(h).unsqueeze(1), size=8, mode="linear", align_corners=False)[:, 0]
=== prelu
+ $fc = nn.Linear(8, 8)
+ $act = nn.PReLU()
h = $act($fc(h))
=== sparse_mask
+ $fc = nn.Linear(8, 8)
?eye = torch.eye(6, device=x.device).to_sparse()
h = torch.sparse.mm(?eye, $fc(h))
=== topk
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
h = h + ?z.topk(2, dim=1).values.mean(1, keepdim=True)
=== sort
+ $fc = nn.Linear(8, 8)
h = $fc(h).sort(dim=1)[0] + h
=== tolist
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
h = ?z * torch.tensor(?z.detach().abs().tolist(), device=x.device)
=== embedding_bag
+ $bag = nn.EmbeddingBag(8, 8, mode="sum")
+ $fc = nn.Linear(8, 8)
?index = torch.arange(8, device=x.device).expand(6, 8)
h = h + $bag(?index, per_sample_weights=torch.sigmoid($fc(h)))
=== bilinear
+ $fc = nn.Linear(8, 8)
+ $b = nn.Bilinear(8, 8, 8)
h = h + $b($fc(h), x) * 0.1
=== renormalized
+ $fc = nn.Linear(8, 8)
h = torch.renorm($fc(h), 2, 0, 3.0)
=== weight_norm
+ $fc = torch.nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
h = $fc(h)
=== spectral_norm
+ $fc = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
h = $fc(h)
=== maximum
+ $fc = nn.Linear(8, 8)
h = torch.maximum($fc(h), x)
=== out_argument
+ $fc = nn.Linear(8, 8)
?z = $fc(h)
with torch.no_grad():
    ?scale = torch.empty(8, device=x.device)
    torch.mean(?z, dim=0, out=?scale)
h = ?z - ?scale
=== addcmul
+ $fc = nn.Linear(8, 8)
h = torch.addcmul(x, $fc(h), x, value=0.5)
=== tensordot
+ $w : torch.randn(8, 8) * 0.3
h = torch.tensordot(h, $w, dims=1)
=== chain
+ $w : torch.randn(8, 8) * 0.3
h = torch.linalg.multi_dot([h, $w, torch.eye(8, device=x.device)])
=== repeat_where
+ $fc = nn.Linear(8, 8)
h = torch.where(torch.isnan($fc(h)), torch.zeros(1, device=x.device), $fc(h))
=== scalar_tensor
+ $fc = nn.Linear(8, 8)
+ $temperature : torch.tensor(1.0)
h = $fc(h) * $temperature.exp().clamp(max=100)
=== grid
+ $fc = nn.Linear(8, 8)
?rows, ?columns = (torch.linspace(-1, 1, size, device=x.device) for size in (6, 8))
?grid = torch.stack(torch.meshgrid(?rows, ?columns, indexing="ij"), -1)
h = F.grid_sample($fc(h)[None, None], ?grid[None], align_corners=True)[0, 0]
""")

OPERATIONS = {**PLAIN, **HAZARDS, **STORES, **TYPES}
