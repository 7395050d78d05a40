"""Where the optimizer of a program lives, and how it is told to step.

``MAKE`` stands for the call that makes it, ``CLASS`` for its class alone; ``OPT`` becomes the expression in
the last line. ``~name`` is what the training script has: a variable or an attribute, as the program goes.
"""

from __future__ import annotations

from adversary.writing import table

HOMES = table("""
=== variable
~optimizer = MAKE
~optimizer
=== variable_opt
~opt = MAKE
~opt
=== dictionary
~state = {"epoch": 0, "optimizer": MAKE}
~state["optimizer"]
=== dictionary_call
~state = dict(optimizer=MAKE, epoch=0)
~state["optimizer"]
=== dictionary_later
~state = {}
~state["optimizer"] = MAKE
~state["optimizer"]
=== namespace
~run = types.SimpleNamespace(optimizer=MAKE, epoch=0)
~run.optimizer
=== namespace_later
~run = types.SimpleNamespace()
~run.optimizer = MAKE
~run.optimizer
=== on_the_model
~model.optimizer = MAKE
~model.optimizer
=== listed
~optimizers = [MAKE]
~optimizers[0]
=== appended
~optimizers = []
~optimizers.append(MAKE)
~optimizers[-1]
=== pair
~pair = (~model, MAKE)
~pair[1]
=== unpacked
~first, ~optimizer = (0, MAKE)
~optimizer
=== factory
! def build(parameters):
!     return CLASS(parameters, lr=0.05)
~optimizer = build(PARAMS)
~optimizer
=== factory_of_two
! def build(parameters):
!     made = CLASS(parameters, lr=0.05)
!     return made, torch.optim.lr_scheduler.StepLR(made, 100)
~optimizer, ~schedule = build(PARAMS)
~optimizer
=== factory_of_dictionary
! def build(parameters):
!     return {"opt": CLASS(parameters, lr=0.05), "name": "x"}
~made = build(PARAMS)
~made["opt"]
=== factory_with_branches
! def build(parameters, name="first"):
!     if name == "first":
!         return CLASS(parameters, lr=0.05)
!     return torch.optim.Adagrad(parameters)
~optimizer = build(PARAMS)
~optimizer
=== holder
! class Holder:
!     def __init__(self, parameters):
!         self.optimizer = CLASS(parameters, lr=0.05)
~holder = Holder(PARAMS)
~holder.optimizer
=== holder_with_property
! class Holder:
!     def __init__(self, parameters):
!         self._made = CLASS(parameters, lr=0.05)
!
!     @property
!     def optimizer(self):
!         return self._made
~holder = Holder(PARAMS)
~holder.optimizer
=== lazy_property
! class Holder:
!     def __init__(self, parameters):
!         self.parameters = list(parameters)
!
!     @functools.cached_property
!     def optimizer(self):
!         return CLASS(self.parameters, lr=0.05)
~holder = Holder(PARAMS)
~holder.optimizer
=== dataclass
! @dataclasses.dataclass
! class Holder:
!     optimizer: torch.optim.Optimizer
!     epoch: int = 0
~holder = Holder(optimizer=MAKE)
~holder.optimizer
=== named_tuple
! Holder = collections.namedtuple("Holder", ["epoch", "optimizer"])
~holder = Holder(0, MAKE)
~holder.optimizer
=== class_attribute
! class Shared:
!     optimizer = None
Shared.optimizer = MAKE
Shared.optimizer
=== wrapper
! class Warm:
!     def __init__(self, optimizer):
!         self.optimizer = optimizer
!         self.count = 0
!         self.param_groups = optimizer.param_groups
!
!     def step(self, closure=None):
!         self.count += 1
!         for group in self.optimizer.param_groups:
!             group["lr"] = 0.05 * min(1.0, self.count / 3)
!         self.optimizer.step()
!
!     def zero_grad(self, set_to_none=True):
!         self.optimizer.zero_grad(set_to_none)
!
!     def state_dict(self):
!         return self.optimizer.state_dict()
!
!     def load_state_dict(self, state):
!         self.optimizer.load_state_dict(state)
~optimizer = Warm(MAKE)
~optimizer
=== subclass
! class Own(CLASS):
!     pass
~optimizer = Own(PARAMS, lr=0.05)
~optimizer
=== subclass_that_clips
! class Own(CLASS):
!     def step(self, closure=None):
!         for group in self.param_groups:
!             torch.nn.utils.clip_grad_norm_(group["params"], 0.1)
!         return super().step(closure)
~optimizer = Own(PARAMS, lr=0.05)
~optimizer
=== conditional
if len(~loader) > 1:
    ~optimizer = MAKE
else:
    ~optimizer = torch.optim.Adagrad(PARAMS)
~optimizer
=== conditional_expression
~optimizer = MAKE if len(~loader) > 1 else torch.optim.Adagrad(PARAMS)
~optimizer
=== by_name
~optimizer = getattr(torch.optim, "CLASSNAME")(PARAMS, lr=0.05)
~optimizer
=== by_table
~optimizer = {"a": CLASS, "b": torch.optim.Adagrad}["a"](PARAMS, lr=0.05)
~optimizer
=== partial
~make = functools.partial(CLASS, lr=0.05)
~optimizer = ~make(PARAMS)
~optimizer
=== alias
~optimizer = MAKE
~other = ~optimizer
~other
=== getter
~kept = MAKE
~get = lambda: ~kept
~get()
=== maker_kept
! _made = {}
!
! def get(parameters):
!     if "it" not in _made:
!         _made["it"] = CLASS(list(parameters), lr=0.05)
!     return _made["it"]
get(PARAMS)
=== default_dictionary
~table = collections.defaultdict(list)
~table["optimizers"].append(MAKE)
~table["optimizers"][0]
=== comprehension
~optimizers = {name: CLASS(p, lr=0.05) for name, p in (("main", PARAMS),)}
~optimizers["main"]
=== comprehension_list
~optimizers = [CLASS(p, lr=0.05) for p in [PARAMS]]
~optimizers[0]
=== nested
~everything = {"train": {"optimizer": [MAKE]}}
~everything["train"]["optimizer"][0]
=== groups
~optimizer = CLASS([{"params": PARAMS, "lr": 0.02}], lr=0.05)
~optimizer
=== groups_later
~optimizer = MAKE
~optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1, device=device))]})
~optimizer
=== set_by_name
~run = types.SimpleNamespace()
setattr(~run, "optimizer", MAKE)
~run.optimizer
=== walrus
(~walrus := MAKE)
~walrus
=== replaced
~optimizer = torch.optim.Adagrad(PARAMS)
~optimizer = MAKE
~optimizer
=== of_a_scheduler
~schedule = torch.optim.lr_scheduler.StepLR(MAKE, 100)
~schedule.optimizer
""")

STEPS = (
    *[("OPT.step()",)] * 4,
    ("?step = OPT.step", "?step()"),
    ("for ?one in (OPT,):", "    ?one.step()"),
    ("[?one.step() for ?one in [OPT]]",),
    ('getattr(OPT, "step")()',),
    ("?used = OPT", "?used.step()"),
    ("if True:", "    OPT.step()"),
    ("try:", "    OPT.step()", "finally:", "    pass"),
    ("(lambda: OPT.step())()",),
    ("OPT.step(None)",),
    ("OPT.step(closure=None)",),
    ("if any(p.grad is not None for p in PARAMS):", "    OPT.step()"),
    ("if not torch.isnan(loss):", "    OPT.step()"),
    ("type(OPT).step(OPT)",),
    ("with torch.no_grad():", "    OPT.step()"),
    ("_ = OPT.step()",),
)

ZEROS = (
    *[("OPT.zero_grad()",)] * 6,
    ("OPT.zero_grad(set_to_none=True)",),
    ("OPT.zero_grad(set_to_none=False)",),
    ("MODEL.zero_grad()",),
    ("for ?p in PARAMS:", "    ?p.grad = None"),
    ("for ?p in PARAMS:", "    if ?p.grad is not None:", "        ?p.grad.zero_()"),
    ("for ?group in OPT.param_groups:", '    for ?p in ?group["params"]:', "        ?p.grad = None"),
)  # fmt: skip

BACKWARDS = (
    *[("loss.backward()",)] * 4,
    ("torch.autograd.backward(loss)",),
    ("torch.autograd.backward([loss])",),
    ("(loss / 2).backward()",),
    ("loss.backward(retain_graph=True)",),
    ("loss.mul(0.5).backward()",),
    ("?scaled = loss * 0.5", "?scaled.backward()"),
    ("loss.sum().backward()",),
    ("loss.backward(gradient=torch.ones_like(loss))",),
    ("(0.5 * loss).backward(retain_graph=True)", "(0.5 * loss).backward()"),
    ("for ?one in [loss]:", "    ?one.backward()"),
    ("if loss.requires_grad:", "    loss.backward()"),
    ("if not torch.isfinite(loss):", "    continue", "loss.backward()"),
    ("loss /= 2", "loss.backward()"),
    ("torch.Tensor.backward(loss)",),
    ("with torch.autograd.set_detect_anomaly(False):", "    loss.backward()"),
    ("?grads = torch.autograd.grad(loss, list(PARAMS), allow_unused=True)",
     "for ?p, ?g in zip(PARAMS, ?grads):", "    ?p.grad = ?g"),
)  # fmt: skip
