"""What the DDP hook and the plain loop have in common: buckets in, their means out; states and reports."""

from __future__ import annotations

import atexit
import copy
import struct
import sys
import traceback
import warnings
import weakref
from dataclasses import replace
from typing import Any, Iterable, NamedTuple, Optional, Sequence, Union

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from thinwire import _native
from thinwire.errors import BadArgument, BadState, Error, GroupLost, StepSkipped
from thinwire.torch import _optimizer, _state
from thinwire.torch._adamw import AdamW
from thinwire.torch._agree import agree, all_well
from thinwire.torch._bucket import Bucket, layer_of, obstacle
from thinwire.torch._device import one_device
from thinwire.torch._engine import Engine, Settings
from thinwire.torch._fork import in_child
from thinwire.torch._options import FORWARD, Options, RunAhead
from thinwire.torch._redistribute import state_of
from thinwire.torch._report import NO_STEP, Report
from thinwire.torch._uncompressed import Uncompressed
from thinwire.torch._undelivered import Undelivered

#: Calls `state_dict()` on all ranks, and writes what it gets on one.
_WRITES_ONE_RANKS = "accelerate.checkpointing"
#: Those that may have a step under way that nobody waits for.
_ahead: "weakref.WeakSet[Core]" = weakref.WeakSet()
#: All optimisers call `_after_optimizer`.
_waiting: Optional[Any] = None


def _after_optimizer(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """The end of running ahead, unless more was asked for. An optimiser asks nothing of the GPU but to do as it says;
    what comes after it may well want the driver for itself, or give the GPU so much to do that its queue is full: both
    would stand in the way of the step that the GPU waits for."""
    cores = [core for core in _open_ones() if core._run_ahead != FORWARD]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]] if cores else []
    # It may have copies of the parameters instead.
    owners = [core for core in cores if any(parameter in core._names for parameter in parameters)]
    for core in owners or cores:
        core.wait()


def _open_ones() -> "list[Core]":
    return [core for core in list(_ahead) if core._open]


def _leave_open(core: Core) -> None:
    """From now on this one's steps may be under way when nobody waits for them."""
    global _waiting
    _waiting = _waiting or register_optimizer_step_post_hook(_after_optimizer)
    _ahead.add(core)


@in_child
def _forget_all() -> None:
    """A forked child does not end its parent's steps."""
    _ahead.clear()


@atexit.register
def _end_all() -> None:
    """Ends the last steps: other ranks wait for this one's part in them. Comes before the groups are stopped, which
    were imported earlier."""
    for core in _open_ones():
        try:
            core._collect()
        except Exception:
            # The others have steps to end as well.
            traceback.print_exc()


class Core:
    """Keeps gradients in step. Parameters are those of :func:`thinwire.torch.compress`."""

    def __init__(
        self, names: "dict[torch.Tensor, str]", method: str, options: Options, falls_back: bool = False
    ) -> None:
        self.method = method
        self._options = options
        #: Made by pickle or copy, and not used since.
        self._is_copy = False
        about = _native.describe(method)
        momentum, sparse = about["momentum"], about["sparse"]
        self.needs_weights: bool = about["needs_weights"]
        self._warms_up_by_epochs: bool = about["warmup"] == "epochs"
        if about["warmup"] == "run" and options.total_steps is None:
            raise BadArgument(
                f"{method} warms up for a part of the run, whose length is not known; give total_steps, the steps of"
                " the whole run, or a warm-up in steps (warmup='quantized/500steps')"
            )
        #: The trained parameters and their names.
        self._names = names
        self._scaler = options.active_scaler
        self._run_ahead: RunAhead = FORWARD if options.run_ahead == FORWARD else bool(options.run_ahead)
        self._by_samples = options.mean == "samples"
        self._steps_per_epoch = options.steps_per_epoch
        self._has_momentum = momentum > 0
        self._samples = 1.0
        #: False while this rank has run out of inputs and only keeps the others company.
        self._has_inputs = True
        self._epoch: Optional[float] = None
        self._density: Optional[float] = None
        self._step = 0
        self._engine = Engine(
            Settings(
                method=self.method,
                has_momentum=self._has_momentum,
                by_samples=self._by_samples,
                check_first=self._scaler is not None,
                check_replicas_every=options.check_replicas_every,
                threads=options.threads,
                process_group=options.process_group,
                timeout=options.deadline,
                run_ahead=self._run_ahead,
                total_steps=options.total_steps,
                falls_back=falls_back,
            )
        )
        #: Whether the last two steps had the same buckets.
        self._settled = False
        self._arrived: "list[Bucket]" = []
        self._uncompressed: "list[Uncompressed]" = []
        #: Whether there are any. They are averaged before the engine begins.
        self._dense_first = False
        self._submitted = 0
        #: Parameters whose gradients are sparse.
        self._sparse: "set[torch.Tensor]" = set()
        #: Where DDP may leave parameters out.
        self._undelivered: Optional[Undelivered] = None
        #: Whether the GPU was left to wait for the last step, so that nobody knows what it has come to.
        self._open = False
        #: That a step was skipped, to be said at the end of the next one.
        self._late: Optional[StepSkipped] = None
        #: The part of the elements that the last step sent; 1: all of them.
        self.last_density = 1.0
        self._report = Report(method=self.method)
        if isinstance(options.optimizer, AdamW):
            options.optimizer.attach(self)
        elif self._has_momentum or sparse:
            _optimizer.watch(weakref.ref(self), self.method, momentum, sparse, options.optimizer)
        if self._run_ahead:
            _leave_open(self)

    def __repr__(self) -> str:
        group = self._engine.group
        where = "not connected" if group is None else f"rank {group.rank} of {group.size}"
        return f"<thinwire.torch.{type(self).__name__} {self.method}, {where}, step {self._step}>"

    # ---- a step ----

    def _add(self, bucket: "Union[Bucket, Uncompressed]") -> None:
        """Adds the next bucket of this step. It is exchanged at once if the buckets have been the same for two steps:
        DDP makes others after its first."""
        place = len(self._arrived)
        if place == 0:
            self._collect()
        if isinstance(bucket, Uncompressed):
            if self._submitted:
                raise Error(f"the gradient of {', '.join(bucket.names)} can't be compressed, but it could before")
            self._uncompressed.append(bucket)
            self._dense_first = True
            return
        self._arrived.append(bucket)
        one_device((each.name, each.gradient) for each in (self._arrived[0], bucket))
        if not self._settled or self._dense_first:
            return
        if self._engine.expects(place, bucket):
            self._submit(place)
        elif self._submitted:
            raise Error(
                f"bucket {place} holds other parameters than in the step before, but buckets before it are on their"
                " way; wrap the model in DistributedDataParallel anew and call thinwire.torch.compress again"
            )
        else:
            self._settled = False

    def _finish(self) -> None:
        """Ends the step: the gradient of every bucket becomes the mean over all ranks."""
        stream = self._waiting_stream()
        self._submit_rest()
        if stream is None:
            self._wait()
        else:
            self._go_on(stream)
        self._say_late()

    def _submit_rest(self) -> None:
        if self._submitted == 0:
            if self._arrived:
                # To make an engine, or kernels, may take all of the GPU: nobody's stream may wait then.
                for other in _open_ones():
                    other.wait()
                self._settled = self._engine.fits(self._arrived)
                if not self._settled:
                    self._engine.build(self._arrived, self._parameter_order())
            # Now, so that the engine has not taken a step yet if the group is lost here.
            self._average_uncompressed()
            for place in range(len(self._arrived)):
                self._submit(place)
        elif self._submitted < len(self._engine.layout):
            expected = len(self._engine.layout)
            raise Error(f"{len(self._arrived)} buckets came in this step; expected {expected} as in the last")

    def _parameter_order(self) -> "list[tuple[str, int]]":
        """Names and dimensions of all parameters in the order of the model, tied ones in each of their places. The
        engine finds the output layer by them. Empty where the order is not known."""
        return []

    def _in_order(self, parameters: "Iterable[torch.Tensor]") -> "list[tuple[str, int]]":
        """The same of these parameters; those that are not trained may have no name."""
        return [(self._names.get(parameter, ""), parameter.dim()) for parameter in parameters]

    def _submit(self, place: int) -> None:
        bucket = self._arrived[place]
        if place == 0:
            self._begin()
        bucket.scale(self._scale(bucket, inverse=True))
        weights = None if bucket.weights is None else _state.handed(bucket.weights)
        self._native.submit(place, _state.handed(bucket.work), weights)
        self._submitted += 1

    def _begin(self) -> None:
        if self._steps_per_epoch is not None:
            self._epoch = self._step / self._steps_per_epoch
        elif self._epoch is None and self._warms_up_by_epochs and self._step == 0:
            warnings.warn(
                f"{self.method} warms up by epochs, but nobody says when one is over: give steps_per_epoch, or call"
                " set_epoch() before every epoch; until then the density stays that of the start",
                stacklevel=2,
            )
        if self._epoch is not None:
            self._native.set_epoch(float(self._epoch))
        if self._by_samples:
            self._native.set_samples(self._samples if self._has_inputs else 0.0)
        self._native.set_density(self._density)

    def _wait(self) -> None:
        try:
            step = self._native.wait() if self._arrived else NO_STEP
        except StepSkipped:
            self._step += 1
            self._report.skipped += 1
            # A scaler finds infinities on every rank, leaves the weights alone and lowers the scale.
            # All of them: there may be an optimiser for each, and a scaler skips those whose gradients overflow.
            for bucket in self._arrived:
                bucket.gradient.fill_(0.0 if self._scaler is None else float("inf"))
            for entry in self._uncompressed:
                entry.discard() if self._scaler is None else entry.overflow()
            if self._scaler is None:
                raise
            return
        self._count(step)
        for bucket in self._arrived:
            self._deliver(bucket)

    def _deliver(self, bucket: Bucket) -> None:
        scale = self._scale(bucket)
        if self._undelivered is not None:
            self._undelivered.add_to(bucket)
        bucket.write_back(scale)
        if self._undelivered is not None:
            self._undelivered.handed_over(bucket, scale)

    def _average_uncompressed(self) -> None:
        if not self._uncompressed:
            return
        group = self._engine.connect()
        weight, total = 1.0, float(group.size)
        if self._by_samples:
            weight = self._samples if self._has_inputs else 0.0
            total = sum(struct.unpack("<d", samples)[0] for samples in group.gather(struct.pack("<d", weight)))
        for entry in self._uncompressed:
            entry.average(group, weight, total)
        if self._scaler is not None and self._arrived and not all(entry.is_finite() for entry in self._uncompressed):
            # The engine must skip this step too: its means would be lost.
            self._arrived[0].work[0] = float("inf")

    def _waiting_stream(self) -> Optional[int]:
        """The stream that may wait for the means in the host's place, if one may."""
        # Not where buckets are new: then all kinds of things are made that wait for all of the GPU.
        new = self._submitted == 0 or not self._has_inputs
        # Nor where the host itself exchanges gradients, or reads from the GPU.
        if self._uncompressed or self._undelivered is not None:
            return None
        if new or not self._run_ahead or self._engine.device.type != "cuda":
            return None
        return int(torch.cuda.current_stream(self._engine.device).cuda_stream)

    def _go_on(self, stream: int) -> None:
        """Ends the step on the GPU: its stream waits for the means, and the host does not.

        The stream is the current one, on which the buckets became ready and the futures of the hook are about to be
        set: these record it, so that whoever takes a mean from them, on whatever stream, waits too. That is how DDP
        takes them; its last work of the pass runs on the stream of the caller of ``backward()``, which autograd also
        lets wait for this one. The next pass writes into the buckets on the same streams, so after the wait.

        Until the step is over its thread needs the GIL: nothing here may wait for the GPU with the GIL held.
        """
        self._native.finish_on(stream)
        self._open = True
        for bucket in self._arrived:
            bucket.write_back(1.0)

    def _collect(self) -> None:
        """Takes in what the last step has come to, if nobody has asked yet; its error is raised here. That it was
        skipped is said at the end of the next step, by all ranks alike: one alone may have asked, for a report, say."""
        if not self._open:
            return
        self._open = False
        try:
            self._count(self._native.wait())
        except StepSkipped as skipped:
            self._step += 1
            self._report.skipped += 1
            late = "this is said one step late (run_ahead): its gradients were zeros, those of this step are good"
            self._late = StepSkipped(f"{skipped}; {late}")
        except BaseException as error:
            self._give_up(error)
            raise

    def _say_late(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            raise late

    def _count(self, step: "dict[str, Any]") -> None:
        self._step += 1
        self._report.ranks = self._engine.connect().size
        self.last_density = float(step["density"])
        if step is NO_STEP:
            self._report.add(step, 0, 0, self._uncompressed)
            return
        if not _open_ones():
            self._native.give_back()
        self._report.add(step, self._native.memory_bytes(), self._native.workspace_bytes(), self._uncompressed)

    def _count_dense(self, size: int) -> None:
        """Counts a step that DDP's own ring all-reduce has carried, of a gradient of so many bytes."""
        self._step += 1
        self.last_density = 1.0
        self._report.ranks = ranks = self._engine.connect().size
        elements = sum(layer.elements for layers in self._engine.layout for layer in layers)
        moved = 2 * size * (ranks - 1) // ranks
        step = {**NO_STEP, "elements": elements, "dense": elements, "sent": moved, "received": moved}
        self._report.add(step, self._native.memory_bytes(), self._native.workspace_bytes())

    def _decided(self, decision: "dict[str, Any]") -> None:
        self._report.decide(decision)

    def _end_step(self) -> None:
        """Forgets the buckets of a step, also of one that failed."""
        self._arrived, self._uncompressed, self._submitted = [], [], 0

    def _give_up(self, error: BaseException) -> None:
        """Tells the other ranks that this one can't go on. What is under way is left to itself."""
        reason = "it was interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
        self._engine.fail(reason)
        self._end_step()

    @property
    def _native(self) -> Any:
        if self._engine.native is None:
            raise Error("the synchronizer was closed")
        return self._engine.native

    def _scale(self, bucket: Bucket, inverse: bool = False) -> "Union[float, torch.Tensor]":
        """The loss scale the gradients carry. On a GPU it stays there: to ask for it would be to wait for the GPU."""
        if self._scaler is None:
            return 1.0
        scale = getattr(self._scaler, "_scale", None)
        if isinstance(scale, torch.Tensor) and scale.device == bucket.work.device:
            # As GradScaler itself does it.
            return scale.double().reciprocal().float() if inverse else scale
        number = float(self._scaler.get_scale())
        return 1.0 / number if inverse else number

    # ---- what the user may say and ask ----

    def set_epoch(self, epoch: float) -> None:
        """Says how many epochs are done, for methods that warm up. The same on all ranks. Not needed with
        ``steps_per_epoch``, which counts them."""
        if not 0 <= epoch < float("inf"):
            raise BadArgument(f"epoch is {epoch!r}; expected a number of at least 0")
        self._epoch = float(epoch)

    def set_samples(self, samples: float) -> None:
        """Says how many samples this rank's next gradients are the mean of, with ``mean="samples"``."""
        if not self._by_samples:
            raise BadArgument("set_samples() has no effect with mean='ranks'; give mean='samples'")
        if not 0 <= samples < float("inf"):
            raise BadArgument(f"samples is {samples!r}; expected a number of at least 0")
        self._samples = float(samples)

    def set_density(self, density: Optional[float]) -> None:
        """Sets another density from the next step on; with ``None`` the method's own again. The same on all ranks."""
        if density is not None and not 0 < density <= 1:
            raise BadArgument(f"density is {density!r}; expected a number above 0 and up to 1")
        if density is not None and self._report.method.startswith("auto"):
            raise BadArgument(f"density is {density!r}, but auto chooses it; give it min_density and max_density")
        self._density = density

    def wait(self) -> None:
        """With ``run_ahead``: waits until the last step is over, so that anything may be asked of the GPU, such as
        copies from or to memory that is not pinned. Its error, if it had one, is raised here, but for a skipped step,
        which all ranks are told of at the end of the next one. Otherwise there is nothing to wait for."""
        self._collect()

    def report(self, reset: bool = False) -> Report:
        """Bytes, ratio, achieved k, gain and stage times since the start, or since the last call with ``reset=True``.
        With ``run_ahead`` it waits for the last step."""
        self._collect()
        kept = self._report
        if reset:
            self._report = Report(method=kept.method, ranks=kept.ranks)
        return copy.deepcopy(kept)

    def close(self) -> None:
        """Gives memory and process group back; all ranks do it together. Nothing can be exchanged afterwards."""
        try:
            self._collect()
        finally:
            self._engine.close()
        self._say_late()

    # ---- states ----

    def state_dict(self, all_ranks: bool = False) -> Any:
        """What this rank has not sent yet, by parameter name, and all else that a run needs to go on as if nothing had
        happened. Every rank has its own; nothing is exchanged. It can be asked for before the first step, after
        :class:`thinwire.GroupLost` (it is then as of the last completed step), and by torch.distributed.checkpoint
        (``dcp.save({"app": sync})``), which stores those of all ranks.

        A run that goes on from it has the same bits, as long as its buckets are the same. DDP makes others in the first
        step after a start, which matters where a method looks at more than one layer at a time.

        With ``all_ranks=True``, which all ranks must call together: a state with those of all ranks on rank 0, and
        ``None`` on the others. That sends a whole residual from every rank to rank 0. Accelerate's ``save_state()``,
        which calls this on all ranks and writes what it gets on one, or on one of each node, gets that too; after
        :class:`thinwire.GroupLost` it gets this rank's.
        """
        caller = sys._getframe(1)
        by_accelerate = caller.f_globals.get("__name__") == _WRITES_ONE_RANKS
        state = _state.pack(self._flat_state(), self._has_momentum)
        if not (all_ranks or by_accelerate):
            return state
        try:
            return self._engine.gather(state, by_accelerate and bool(caller.f_locals.get("save_on_each_node")))
        except GroupLost:
            if all_ranks:
                raise
            return state

    def _flat_state(self) -> "dict[str, Any]":
        self._collect()
        if self._undelivered is not None:
            self._undelivered.settle()
        sparse = sorted(self._names[p] for p in self._sparse if p in self._names and p.requires_grad)
        return {**self._engine.saved(self._shapes() or {}), _state.SPARSE: sparse}

    def blank_state_dict(self, ranks: int) -> "dict[str, Any]":
        """A state of zeros of a run with so many ranks, for torch.distributed.checkpoint to read into, and then for
        :meth:`load_state_dict`. Needed only where the number of ranks has changed: otherwise
        ``dcp.load({"app": sync})`` does it."""
        return self._engine.blank(ranks, self._shapes() or {})

    def residual(self) -> "dict[str, torch.Tensor]":
        """What this rank has not sent yet, by parameter name."""
        residual: "dict[str, torch.Tensor]" = self._flat_state()["residual"]
        return residual

    def load_state_dict(
        self, state: Any, strict: bool = True, lost_ranks: "Optional[Sequence[int]]" = None
    ) -> "Incompatible":
        """Goes on from this rank's state, or from those of all ranks there were, in one or as a list. These also fit
        into more or fewer ranks: the sum of what was not sent is kept. All ranks call it together: if the state of one
        does not fit, none loads anything.

        Args:
            state: What :meth:`state_dict` gave, also of an earlier version, or a list of it.
            strict: Whether it must have exactly the parameters of this model. If not, those that are missing begin with
                nothing, what is kept of unknown ones is dropped, and both are returned, as far as they are known: a
                ``HookState`` without a model learns of its parameters in the first step.
            lost_ranks: Ranks that saved nothing, by their old numbers. What they had not sent is lost; the others are
                loaded, into any number of ranks.
        """
        self._collect()
        group = self._engine.connect()
        group.check()
        problem, mine, found = None, {}, Incompatible([], [])
        lost = sorted(lost_ranks or ())
        try:
            states = state if isinstance(state, (list, tuple)) else [state]
            flats = [flat for one in states for flat in _state.unpack(one)]
            mine = state_of(flats, group.rank, group.size, lost)
            shapes = self._shapes()
            if shapes is not None:
                # Nothing is kept of these.
                shapes = {name: shape for name, shape in shapes.items() if name not in mine.get(_state.SPARSE, ())}
            mine, *names = _state.fitted(mine, shapes, self._has_momentum, strict)
            found = Incompatible(*names)
            if found.missing_keys:
                mine = _state.complete(mine, shapes or {}, self._has_momentum)
        except BadState as error:
            problem = str(error)
        except (AttributeError, KeyError, TypeError, RuntimeError) as error:
            problem = f"the state is damaged: {type(error).__name__}: {error}"
        all_well(group, problem)
        told = {"the step of the state": str(mine["step"]), "its epoch": str(mine["epoch"])}
        agree(group, {**told, "lost_ranks": str(lost), "strict": str(strict)})
        self._engine.restore(mine, strict)
        self._expect_sparse(mine.get(_state.SPARSE, ()))
        if self._undelivered is not None:
            self._undelivered.forget()
        self._late = None
        self._step = mine["step"]
        self._restored()
        return found

    def _restored(self) -> None:
        """A state was loaded."""

    def _expect_sparse(self, names: "Sequence[str]") -> None:
        """The run that saved a state had sparse gradients of these parameters."""

    # ---- copies ----

    def __getstate__(self) -> "dict[str, Any]":
        """For pickle and ``copy.deepcopy``: the settings, and what was not sent. Process groups, the model and the
        scaler are left out. A copy has no group until it is used: it exchanges nothing and closes nothing. Of one that
        was closed, whose residual is gone, the copy is closed too."""
        self._collect()
        kept = self._flat_state() if self._engine.has_kept() else None
        options = replace(self._options, process_group=None, optimizer=None, scaler=None)
        given = {"scaled": self._scaler is not None, "epoch": self._epoch, "density": self._density}
        given["closed"] = self._engine.closed
        return {"method": self.method, "options": options, "kept": kept, "samples": self._samples, **given}

    def __deepcopy__(self, memo: "dict[int, Any]") -> "Core":
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        state = self.__getstate__()
        # Only the model's: what was not sent was copied when it was asked for.
        state["parameters"] = copy.deepcopy(state.get("parameters"), memo)
        made.__setstate__(state)
        return made

    def __setstate__(self, state: "dict[str, Any]") -> None:
        raise NotImplementedError

    def _become(
        self, state: "dict[str, Any]", names: "dict[torch.Tensor, str]", falls_back: bool = False
    ) -> None:
        """Takes over what `__getstate__` gave."""
        Core.__init__(self, names, state["method"], state["options"], falls_back)
        self._epoch, self._density, self._samples = state["epoch"], state["density"], state["samples"]
        self._is_copy, self._was_scaled = True, state["scaled"]
        self._engine.closed = state["closed"]
        if state["kept"] is not None:
            self._engine.restore(state["kept"])
            self._step = state["kept"]["step"]

    def _rejoin(self) -> None:
        """The first use of a copy. All ranks come here together."""
        self._is_copy = False
        problem, kept = None, self._engine.kept()
        if self._was_scaled:
            problem = "it was made with a scaler, which is not copied. Make another with the scaler, and give its"
            problem += " load_state_dict() the state_dict() of this one"
        group = self._engine.connect()
        if kept is not None and kept["ranks"] and (kept["rank"], kept["ranks"]) != (group.rank, group.size):
            problem = f"it holds what rank {kept['rank']} of {kept['ranks']} had not sent, this is rank {group.rank} of"
            problem += f" {group.size}. Every rank loads its own"
        all_well(group, problem)
        agree(group, {"the step of the copy": str(None if kept is None else kept["step"])})

    def _shapes(self) -> "Optional[dict[str, tuple[int, ...]]]":
        """The shapes of the parameters that are trained, by name; `None` as long as they are not known."""
        if self._engine.layout:
            return {layer.name: layer.shape for layers in self._engine.layout for layer in layers}
        known = [p for p in self._names if p.requires_grad and p.numel() and p not in self._sparse]
        trained = [p for p in known if obstacle(p) is None]
        return {self._names[p]: layer_of(self._names[p], p).shape for p in trained} or None


class Incompatible(NamedTuple):
    """The parameters that a state and a model do not share, as ``torch.nn.Module.load_state_dict`` has them."""

    missing_keys: "list[str]"
    unexpected_keys: "list[str]"
