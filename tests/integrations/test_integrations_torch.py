"""`patch` and `Linear`: the same numbers, parameters, ties and hooks, on Lanewise's dispatch."""

import copy
import io

import pytest
import torch
from support import tiny
from torch import nn
from torch.nn import functional

import lanewise
from lanewise import dispatch
from lanewise.errors import ModelError
from lanewise.integrations.torch import Linear, patch, unpatch

IDS = torch.tensor([[3, 141, 59, 26, 53]])


def model(*layers):
    return nn.Sequential(*layers)


def constant(monkeypatch):
    """What layers promise of their weights, call by call."""
    said = []
    real = lanewise.integrations.torch.ops.linear
    monkeypatch.setattr("lanewise.ops.linear", lambda *a, constant_w, **more: said.append(constant_w) or real(*a, constant_w=constant_w, **more))
    return said


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_model_of_transformers_has_the_same_logits_through_dispatch(family):
    theirs = tiny.model_of(family).to(torch.bfloat16)
    linears = [name for name, layer in theirs.named_modules() if isinstance(layer, nn.Linear)]
    names, tied = list(theirs.state_dict()), theirs.lm_head.weight is theirs.model.embed_tokens.weight
    with torch.no_grad():
        want = theirs(IDS).logits
        done = lanewise.patch(theirs)
        with dispatch.witness() as ran:
            got = theirs(IDS).logits
    assert (list(done.names), done.left) == (linears, {})
    assert torch.equal(got, want)
    assert dict(ran) == {"blas": len(linears)}
    assert list(theirs.state_dict()) == names
    assert (theirs.lm_head.weight is theirs.model.embed_tokens.weight) == tied == (family == "llama")
    assert unpatch(theirs) == done.names
    with torch.no_grad(), dispatch.witness() as ran:
        assert torch.equal(theirs(IDS).logits, want)
    assert not ran


def test_a_patched_model_compiles_in_one_graph_and_calls_the_op():
    theirs = tiny.model_of("qwen3").to(torch.bfloat16)
    with torch.no_grad():
        want = theirs(IDS).logits
        done = patch(theirs)
        with dispatch.witness() as ran:
            got = torch.compile(theirs, fullgraph=True, backend="aot_eager")(IDS).logits
    assert torch.equal(got, want)
    assert dict(ran) == {"blas": len(done.names)}


def test_a_patched_model_trains():
    layers = model(nn.Linear(8, 8), nn.Linear(8, 4)).train()
    x = torch.randn(3, 8)
    layers(x).sum().backward()
    want = [p.grad for p in layers.parameters()]
    layers.zero_grad()
    patch(layers)
    with dispatch.witness() as ran:
        layers(x).sum().backward()
    assert dict(ran) == {"blas": 2}
    assert all(map(torch.equal, (p.grad for p in layers.parameters()), want))
    assert layers[0].training


def test_a_layer_keeps_its_identity_hooks_and_whoever_holds_it():
    layer = nn.Linear(4, 4).eval()
    layers, held, seen = model(layer, layer), [layer], []
    handle = layer.register_forward_hook(lambda module, given, y: seen.append(y))
    assert patch(layers).names == ("0",)
    assert layers[0] is layers[1] is held[0]
    assert type(held[0]) is lanewise.nn.Linear
    layers(torch.zeros(1, 4))
    handle.remove()
    layers(torch.zeros(1, 4))
    assert (len(seen), layer.training) == (2, False)


def test_a_single_layer_can_be_patched_and_twice_is_once():
    layer = nn.Linear(4, 4)
    assert (patch(layer).names, patch(layer).names, type(layer)) == (("",), (), Linear)


def test_layers_that_are_something_else_are_left_with_the_reason():
    class Quantized(nn.Linear):
        pass

    wrapped = nn.Linear(4, 4)
    wrapped.forward = lambda x: x
    layers = model(Quantized(4, 4), wrapped, nn.Linear(4, 4), nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)), nn.MultiheadAttention(4, 1))
    done = patch(layers)
    assert done.names == ("2",)
    assert set(done.left) == {"0", "1", "3", "4.out_proj"}
    assert "Quantized is not torch.nn.Linear itself; what it computes is its own" in done.left["0"]
    assert "its forward has been replaced on the layer itself" in done.left["1"]
    assert type(layers[0]) is Quantized


def test_only_some_layers_can_be_taken():
    layers = model(nn.Linear(4, 4), nn.Linear(4, 2))
    assert patch(layers, only=lambda name, layer: layer.out_features == 2).names == ("1",)


def test_what_is_no_module_is_refused():
    with pytest.raises(ModelError, match=r"list is no torch\.nn\.Module; patch takes a model or one of its layers"):
        patch([nn.Linear(2, 2)])


def test_from_torch_shares_everything_and_copies_nothing():
    layer = nn.Linear(4, 3, bias=False).half().eval()
    made = Linear.from_torch(layer)
    assert (type(made), type(layer), made.weight is layer.weight, made.training) == (Linear, nn.Linear, True, False)
    assert list(made.state_dict()) == list(layer.state_dict()) == ["weight"]
    layer.float()
    assert made.weight.dtype is torch.float32
    with pytest.raises(ModelError, match=r"is not torch\.nn\.Linear itself"):
        Linear.from_torch(made)


def test_a_linear_of_its_own_loads_a_state_dict_of_torchs_and_is_saved():
    theirs, ours = nn.Linear(4, 3), lanewise.nn.Linear(4, 3)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 4)
    assert torch.equal(ours(x), theirs(x))
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), copy.deepcopy(ours)(x))


def test_a_weight_is_promised_to_rest_only_when_nothing_may_be_writing_it(monkeypatch):
    said = constant(monkeypatch)
    layer, x = Linear(4, 4), torch.zeros(1, 4)
    layer(x), layer(x)
    assert said == [False, False]  # it may be trained
    with torch.no_grad():
        layer(x), layer(x)
        assert said[2:] == [False, True]
        layer.weight.add_(1)
        layer(x), layer(x)
        assert said[4:] == [False, True]  # the change may still be on its way
        layer.weight.data = torch.ones(4, 4)
        layer(x), layer(x)
        assert said[6:] == [False, True]
    layer.requires_grad_(False)
    layer(x)
    assert said[8:] == [True]
    del layer._parameters["weight"]
    layer.weight = torch.ones(4, 4)  # as a hook would that makes it anew for each call
    layer(x), layer(x)
    assert said[9:] == [False, False]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_what_the_op_does_not_take_is_torchs_own(dtype):
    layer, x = Linear(4, 3, dtype=dtype), torch.randn(2, 4, dtype=dtype)
    theirs = nn.Linear(4, 3, dtype=dtype)
    theirs.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), theirs(x))
    with pytest.raises(RuntimeError, match="dtype"):
        layer(x.half())


def test_under_autocast_torch_chooses_the_types():
    layer = Linear(4, 3)
    with torch.autocast("cpu", torch.float16), dispatch.witness() as ran:
        assert layer(torch.randn(2, 4)).dtype is torch.float16
    assert not ran


def test_a_layer_without_data_says_its_shape():
    layer = Linear(4, 3, device="meta")
    for mode in (torch.enable_grad, torch.no_grad):
        with mode():
            assert layer(torch.empty(2, 4, device="meta")).shape == (2, 3)


def whole():
    """A layer and an x of small whole numbers, whose sums are exact in any order."""
    layer = Linear(4, 3)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randint(-4, 5, p.shape))
    return layer, torch.randint(-4, 5, (2, 4)).float()


def of(layer, x):
    return lambda given: torch.func.functional_call(layer, given, (x,))


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_inside_transforms_of_torch_func_it_is_torchs_own(mode):
    layer, x = whole()
    given = {name: p.detach() for name, p in layer.named_parameters()}
    ones = {name: torch.ones_like(p) for name, p in given.items()}
    with mode():
        want = functional.linear(x, **given)
        assert torch.equal(torch.vmap(of(layer, x))({name: torch.stack([p, p]) for name, p in given.items()})[1], want)
        assert torch.equal(torch.func.jvp(of(layer, x), (given,), (ones,))[1], functional.linear(x, **ones))
        assert torch.equal(torch.func.functionalize(of(layer, x))(given), want)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Sparse CSR tensor support")
def test_other_layouts_are_torchs_own():
    layer, x = whole()
    want = layer(x)
    nested = torch.nested.nested_tensor([x, x[:1]])
    assert torch.equal(layer(nested).unbind()[1], want[:1])
    layer.weight = nn.Parameter(layer.weight.detach().to_sparse_csr(), requires_grad=False)
    assert torch.equal(layer(x), want)


def test_a_trace_is_the_same_at_every_call_and_promises_nothing():
    layer = Linear(4, 3).requires_grad_(False)
    layer(torch.zeros(1, 4))
    traced = torch.jit.trace(layer, torch.zeros(1, 4))
    assert torch.equal(traced(torch.ones(2, 4)), layer(torch.ones(2, 4)))
    assert "prim::Constant[value=1]" not in str(traced.graph)


def test_the_front_door_names_them_and_loads_them_late():
    assert lanewise.nn.Linear is Linear
    assert lanewise.patch is patch
    assert {"nn", "patch"} <= set(lanewise.__all__)
