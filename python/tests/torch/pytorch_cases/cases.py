"""PyTorch's own test cases of DDP and its hooks by their names there, each with the test here that asks the same of
compression, or with the reason why it does not apply.

``test_x.py::test_y[z]`` is a test in this folder, by the name that pytest takes, ``../test_x.py`` one beside it, and
``../../gpu/...`` one in python/tests/gpu, which needs a GPU. Where PyTorch compares with a single process or with a
hook that sums everything, these compare with plain DDP, with everything sent; and at 5 % ranks have to stay equal, and
the sum of what was delivered and what is kept has to be that of the gradients.

All tests of this folder together take a minute and a half on two cores that are busy otherwise (torch 2.11); five
minutes are the limit.
"""

from __future__ import annotations

MODELS = "test_pytorch_models.py::test_gradients"
HOOKS = "test_pytorch_hooks.py::test_"
JOIN = "test_pytorch_join.py::test_"
BUFFERS = "test_pytorch_buffers.py::test_"
OPTIMIZERS = "test_pytorch_optimizers.py::test_"
ERRORS = "test_pytorch_errors.py::test_"
GPU = "../../gpu/test_gpu_pytorch.py::test_"


def _model(*cases: str) -> str:
    return " ".join(f"{MODELS}[{case.replace(' ', '_')}]" for case in cases)


class NotApplicable(str):
    """Why a case asks nothing of compression."""


_RPC = NotApplicable("torch.distributed.rpc's tests: DDP within distributed autograd makes gradients without hooks")
_NCCL = NotApplicable("what NCCL writes into an execution trace; the hook exchanges over Gloo")
_LOG = NotApplicable("figures that DDP's C++ logger keeps of its own all-reduces and timers")
_NAMES = NotApplicable("DDP's inner map from indices to names, made in its constructor; no gradient is exchanged")
_BUCKETS = NotApplicable("the function that assigns parameters to buckets, by itself; no gradient is exchanged")
_POWER = NotApplicable("what PowerSGD's state accepts; ours: ../test_failures.py::test_bad_arguments_are_explained")
_SHARDED = NotApplicable(
    "a ShardedTensor in a model whose constructor is called, and nothing else; ignored parameters: "
    f"{_model('parameters ignored')}"
)
_TWO_GPUS = NotApplicable(
    "a model spread over several GPUs; thinwire names the two devices and refuses it: "
    "../test_slips.py::test_devices_that_can_not_be_used_are_named"
)
_REDUCER = NotApplicable("the C++ reducer refuses a bucket of two dtypes; no hook gets one")
_SINK = NotApplicable("a switch that leaves out the copy of outputs in the forward pass")
_OVERLAP = NotApplicable("refused by PyTorch with any group over Gloo, which hooks exchange over here")
_INNER = NotApplicable("the names DDP gives to parameters in its own list; no gradient is exchanged")
_TAKEN = GPU + "features_of_ddp_that_take_the_place_of_the_hook"
_OPTIMIZER_HOOK = NotApplicable(
    "DDP puts an optimiser into its own hook and takes no other, which compress() says: "
    f"{_TAKEN}[optimizer_in_backward]"
)
_PRECISION_HOOK = NotApplicable(
    "DDP casts gradients in its own hook and takes no other, which compress() says (torch.autocast: "
    f"{OPTIMIZERS}autocast_and_a_scaler): {_TAKEN}[mixed_precision]"
)

#: test/distributed/algorithms/ddp_comm_hooks/test_ddp_hooks.py
TEST_DDP_HOOKS: "dict[str, str]" = {
    "test_ddp_comm_hook_allreduce_hook": _model("plain"),
    "test_ddp_comm_hook_fp16compress_hook": HOOKS + "hooks_around_it[fp16]",
    "test_ddp_comm_hook_quantize_per_tensor_hook": HOOKS + "quantized_values",
    "test_ddp_comm_hook_quantize_per_channel_hook": HOOKS + "quantized_values",
    "test_ddp_comm_hook_noop_hook": HOOKS + "an_exchange_after_the_pass",
    "test_is_last_hook": HOOKS + "futures_of_all_buckets_end",
}

#: test/distributed/test_c10d_gloo.py: DistributedDataParallelTest, with what it inherits from test_c10d_common.py, and
#: ReducerTest.
TEST_C10D_GLOO: "dict[str, str]" = {
    "test_gloo_backend_cpu_module": _model("plain"),
    "test_gloo_backend_cpu_module_grad_is_view": _model("bucket views"),
    "test_gloo_backend_1gpu_module_device_ids_integer_list": GPU + "gradients[plain]",
    "test_gloo_backend_1gpu_module_device_ids_torch_device_list": GPU + "gradients[plain]",
    "test_gloo_backend_2gpu_module": _TWO_GPUS,
    "test_gloo_backend_4gpu_module": _TWO_GPUS,
    "test_global_local_unused_params_grad": _model("used on one rank each"),
    "test_global_local_unused_params_grad_with_grad_is_view": _model("used on one rank each, bucket views"),
    "test_global_local_unused_params_grad_with_static_graph": _model("used on one rank each, static graph"),
    "test_find_unused_parameters_when_unused_parameters_empty": _model("all used on rank 0 only"),
    "test_ignored_output": _model("outputs ignored"),
    "test_ignored_output_with_unused_parameters": _model("outputs ignored, unused"),
    "test_ignored_sharded_tensor": _SHARDED,
    "test_save_load_checkpoint": BUFFERS + "checkpoints",
    "test_sparse_gradients": _model("sparse"),
    "test_sparse_gradients_grad_is_view": _model("sparse, bucket views"),
    "test_ddp_comm_hook_future_passing_cpu": HOOKS + "what_a_callback_returns_becomes_the_gradient",
    "test_ddp_comm_hook_future_passing_gpu_gloo": GPU + "gradients[plain]",
    "test_ddp_invalid_comm_hook_init": HOOKS + "what_is_refused",
    "test_ddp_invalid_comm_hook_return_type": HOOKS + "what_is_refused",
    "test_ddp_comm_hook_register_just_once": HOOKS + "what_is_refused",
    "test_ddp_comm_hook_sparse_gradients": _model("sparse", "sparse and dense"),
    "test_ddp_checkpointing_once": _model("checkpoint", "checkpoint, bucket views", "checkpoint, reentrant"),
    "test_ddp_checkpointing_unused_params": _model("checkpoint, unused", "checkpoint, reentrant, static graph")
    + f" {ERRORS}errors_of_ddp[recomputed,_unused]",
    "test_ddp_checkpointing_twice": _model("checkpoint twice") + f" {ERRORS}errors_of_ddp[recomputed_twice]",
    "test_ddp_checkpointing_twice_static_graph": _model("checkpoint twice, reentrant, static graph"),
    "test_ddp_checkpointing_dynamic_module": _model("checkpoint in turn", "checkpoint in turn, bucket views"),
    "test_ddp_checkpointing_dynamic_weight_sharing": _model("checkpoint in turn, shared weights"),
    "test_ddp_checkpointing_weight_sharing": _model("shared weights", "shared weights, static graph"),
    "test_ddp_checkpointing_twice_weight_sharing": _model("checkpoint twice, shared weights"),
    "test_invalid_powerSGD_state": _POWER,
    "test_sync_batch_norm_only_empty_input": GPU + "synchronised_batch_normalisation",
    "test_sync_batch_norm_empty_input": GPU + "synchronised_batch_normalisation",
    "test_ddp_buffer_sync_multi_forward_with_batchnorm": _model("two forward passes with buffers"),
    "test_dataclass_output": _model("dataclass output"),
    "test_dataclass_output_unused_param": _model("dataclass output, unused"),
    "test_single_dtype_single_bucket": _model("one bucket"),
    "test_multi_dtype_single_bucket": _REDUCER,
    "test_multi_dtype_multi_bucket": _model("two dtypes"),
    "test_forward_backward": _model("two dtypes"),
    "test_forward_backward_unused_parameters": _model("two dtypes, one unused at first"),
    "test_forward_backward_optimizer": _model("two dtypes, one unused at first"),
    "test_single_limit_single_dtype": _BUCKETS,
    "test_single_limit_multi_dtype": _BUCKETS,
    "test_multi_limit_single_dtype": _BUCKETS,
    "test_multi_limit_multi_dtype": _BUCKETS,
}

#: torch/testing/_internal/distributed/distributed_test.py: all that make a DistributedDataParallel, those included that
#: PyTorch skips or has commented out.
DISTRIBUTED_TEST: "dict[str, str]" = {
    "test_DistributedDataParallelCPU": _model("gradients set to zero"),
    "test_DistributedDataParallelCPU_grad_is_view": _model("bucket views set to zero"),
    "test_DistributedDataParallel_requires_grad": ERRORS + "models_without_gradients",
    "test_ddp_zero_output_features": _model("no output features"),
    "test_ddp_create_graph": _model("create_graph"),
    "test_DistributedDataParallel_non_default_stream": GPU + "another_stream",
    "test_ddp_comm_hook_logging": HOOKS + "ddp_logs_its_name",
    "test_ddp_hook_with_optimizer_parity_adamw": HOOKS + "an_optimizer_in_the_hook[adamw]",
    "test_ddp_hook_with_optimizer_parity_adam": HOOKS + "an_optimizer_in_the_hook[adam]",
    "test_ddp_hook_with_optimizer_parity_sgd": HOOKS + "an_optimizer_in_the_hook[sgd]",
    "test_get_data_parallel_params": _INNER,
    "test_ddp_apply_optim_in_backward": _OPTIMIZER_HOOK,
    "test_ddp_apply_optim_in_backward_grad_as_bucket_view_false": _OPTIMIZER_HOOK,
    "test_ddp_apply_optim_in_backward_ignored_params": _OPTIMIZER_HOOK,
    "test_ddp_native_mixed_precision_ignored_params": _PRECISION_HOOK,
    "test_ddp_native_mixed_precision_no_grad_as_bucket_view_no_set_grad_none": _PRECISION_HOOK,
    "test_ddp_native_mixed_precision_grad_as_bucket_view_no_set_grad_none": _PRECISION_HOOK,
    "test_ddp_native_mixed_precision_grad_as_bucket_view_set_grad_to_none": _PRECISION_HOOK,
    "test_ddp_native_mixed_precision_no_grad_as_bucket_view_set_grad_to_none": _PRECISION_HOOK,
    "test_ddp_hook_parity_allreduce": HOOKS + "parity[dense]",
    "test_ddp_hook_parity_allreduce_process_group": HOOKS + "parity[a_process_group]",
    "test_ddp_hook_parity_powerSGD": f"{HOOKS}parity[topk] {HOOKS}parity[redsync] {HOOKS}parity[small_layers]",
    "test_ddp_hook_parity_post_localSGD": OPTIMIZERS + "post_local_sgd[periodic]",
    "test_accumulate_gradients_no_sync": _model("accumulated"),
    "test_accumulate_gradients_no_sync_grad_is_view": _model("accumulated, bucket views"),
    "test_accumulate_gradients_no_sync_allreduce_hook": _model("accumulated"),
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook": HOOKS + "hooks_around_it[callbacks]",
    "test_DistributedDataParallel": _model("static graph", "static graph, bucket views", "static graph, set twice")
    + f" {BUFFERS}a_saved_model {GPU}gradients[plain]",
    "test_DistributedDataParallel_with_amp_and_grad_is_view": f"{OPTIMIZERS}autocast_and_a_scaler {GPU}autocast",
    "test_post_localSGD_optimizer_parity": OPTIMIZERS + "post_local_sgd[periodic]",
    "test_post_localSGD_optimizer_parity_grad_is_view": OPTIMIZERS + "post_local_sgd[periodic]",
    "test_post_localSGD_optimizer_parity_with_hierarchical_sgd": OPTIMIZERS + "post_local_sgd[hierarchical]",
    "test_post_localSGD_optimizer_parity_with_hierarchical_sgd_grad_is_view": OPTIMIZERS
    + "post_local_sgd[hierarchical]",
    "test_post_localSGD_optimizer_step_reload": OPTIMIZERS + "post_local_sgd_goes_on_from_a_state",
    **dict.fromkeys(
        (
            "test_DistributedDataParallel_SyncBatchNorm_Channels_Last",
            "test_DistributedDataParallel_SyncBatchNorm",
            "test_DistributedDataParallel_SyncBatchNorm_No_Affine",
            "test_DistributedDataParallel_SyncBatchNorm_2D_Input",
            "test_DistributedDataParallel_SyncBatchNorm_Single_Input_Per_Process",
            "test_DistributedDataParallel_SyncBatchNorm_Diff_Input_Sizes_Running_Value",
            "test_DistributedDataParallel_SyncBatchNorm_Diff_Input_Sizes_gradient",
            "test_DistributedDataParallel_SyncBatchNorm_half",
        ),
        f"{GPU}synchronised_batch_normalisation {_model('batch normalisation', 'batch normalisation, no weights')}",
    ),
    "test_ddp_logging_data_cpu": _LOG,
    "test_ddp_logging_data_gpu": _LOG,
    "test_ddp_bucket_cap_mb_list": _model("a list of bucket sizes"),
    "test_static_graph_api_cpu": ERRORS + "errors_of_ddp[a_static_graph,_said_too_late]",
    "test_ddp_sync_module_states": BUFFERS + "module_states",
    "test_ddp_grad_div_uneven_inputs": JOIN + "what_means_are_divided_by",
    "test_ddp_profiling_autograd_profiler": HOOKS + "profiled[autograd]",
    "test_ddp_profiling_torch_profiler": HOOKS + "profiled[torch]",
    "test_ddp_profiling_execution_trace": _NCCL,
    "test_ddp_join_model_equivalence": JOIN + "as_one_process",
    "test_ddp_uneven_inputs_stop_iteration_sync_bn": JOIN + "all_stop_with_the_first",
    "test_ddp_uneven_inputs": f"{JOIN}uneven_inputs {JOIN}uneven_inputs_on_four_ranks {JOIN}all_stop_with_the_first",
    "test_ddp_uneven_input_join_disable": JOIN + "switched_off",
    "test_ddp_uneven_input_exception": JOIN + "an_exception_passes_through",
    "test_ddp_ignore_params_arg": _model(
        "parameters ignored", "parameters ignored, static graph", "parameters ignored, unused"
    ),
    "test_ddp_unused_params_rebuild_buckets_exception": ERRORS + "errors_of_ddp[unused,_not_told]",
    "test_ddp_shared_grad_acc_unused_params": _model("unused with two names", "unused with two names, static graph"),
    "test_ddp_device": _model(*(f"inputs: {kind}" for kind in ("tuple", "list", "dict", "namedtuple", "object"))),
    "test_ddp_namedtuple": _model("inputs: namedtuple"),
    "test_grads_same_across_ranks_with_no_sync": _model("accumulated, each rank its own layers"),
    "test_ddp_control_flow_same_across_ranks": _model("used in odd steps", "used in odd steps, bucket views")
    + f" {ERRORS}counts_of_used_parameters {ERRORS}errors_of_ddp[unused_on_odd_steps,_not_told]",
    "test_invalid_static_graph": f"{ERRORS}errors_of_ddp[a_static_graph_that_grows]"
    f" {ERRORS}errors_of_ddp[a_static_graph_that_shrinks]",
    "test_ddp_control_flow_different_across_ranks": _model("used in odd steps on rank 1")
    + f" {ERRORS}counts_of_used_parameters",
    "test_compute_bucket_assignment_by_size_sparse_error_without_logger": _BUCKETS,
    "test_compute_bucket_assignment_by_size_sparse_error_with_logger": _BUCKETS,
    "test_verify_model_across_rank_with_logger": ERRORS + "models_that_differ_between_ranks[shape]",
    "test_verify_model_across_rank_without_logger": ERRORS + "models_that_differ_between_ranks[shape]",
    "test_ddp_model_diff_shape_across_ranks": ERRORS + "models_that_differ_between_ranks[shape]",
    "test_ddp_model_diff_num_params_across_ranks": ERRORS + "models_that_differ_between_ranks[number]",
    "test_output_unused_in_loss_tuple_module": _model("an output unused", "an output unused, bucket views"),
    "test_output_unused_in_loss_dict_module": _model(
        "an output in a dict unused", "an output in a dict unused, bucket views"
    ),
    "test_undefined_grad_parity_unused_parameters": _model("undefined gradients"),
    "test_different_graph_across_ranks": _model("another graph on rank 0", "another graph on rank 0, static"),
    "test_ddp_build_debug_param_to_name_mapping": _NAMES,
    "test_ddp_build_debug_param_to_name_mapping_requires_grad": _model("frozen"),
    "test_ddp_multiple_nested_unused_params_error": ERRORS + "errors_of_ddp[unused,_not_told]",
    "test_ddp_multiple_nested_unused_params_err_ignore_params": ERRORS + "errors_of_ddp[unused_and_ignored]",
    "test_ddp_inference": BUFFERS + "inference_on_one_rank",
    "test_ddp_sync_bn_training_vs_eval": GPU + "synchronised_batch_normalisation",
    "test_ddp_python_error_logged": HOOKS + "what_is_refused",
    "test_ddp_static_graph_nested_types": _model(
        *(f"outputs: {kind}{graph}" for kind in ("tuple", "list", "dict") for graph in ("", ", static graph"))
    ),
    "test_ddp_returns_tensor_with_no_grad": _model(
        *(f"a detached output, {unused=}, {static=}" for unused in (False, True) for static in (False, True))
    ),
    "test_detect_ddp_is_actually_static": ERRORS + "static_graphs_are_noticed",
    "test_ddp_new_tensor_in_fwd": _model("new tensors in forward"),
    "test_ddp_new_tensor_in_fwd_static_graph": _model("new tensors in forward, static graph"),
    "test_ddp_buffer_hook_allreduce_return_future": BUFFERS + "buffers[sum_after,_futures]",
    "test_ddp_buffer_hook_allreduce": f"{BUFFERS}buffers[sum_before] {BUFFERS}buffers[sum_after]",
    "test_ddp_broadcast_buffer_via_hook": BUFFERS + "buffers[broadcast]",
    "test_ddp_remove_autograd_hooks": ERRORS + "a_model_is_wrapped_anew_after_an_error",
    # DDP's own check; an output it does not see has no gradient on one rank, and the hook's deadline ends the wait.
    "test_ddp_has_finalized": ERRORS + "a_rank_that_does_not_finish_its_pass",
    "test_ddp_update_process_group_new_group": ERRORS + "other_process_groups",
    "test_ddp_update_process_group_default_group": ERRORS + "other_process_groups",
    "test_ddp_update_process_group_grad_undefined": ERRORS + "a_model_is_wrapped_anew_after_an_error",
    "test_ddp_update_process_group_no_find_unused": ERRORS + "other_process_groups",
    "test_ddp_broadcast_buffer": BUFFERS + "buffers[none]",
    "test_static_graph_multi_forward": _model("static graph, two forward passes"),
    "test_sync_bn_logged": _LOG,
    "test_stateless_api_with_ddp": _model("functional call"),
    "test_ddp_forward_backward_hook": _model("module hooks"),
    "test_ddp_hook_pickling_powerSGD": HOOKS + "a_state_is_pickled",
    "test_ddp_device_mesh_initialization": HOOKS + "a_device_mesh",
    "test_ddp_compile_static_graph": HOOKS + "compiled",
    "test_ddp_sink_noclone": _SINK,
    "test_skip_all_reduce_unused_parameters": _model("buckets skipped: the last", "buckets skipped: in between"),
}

#: test/distributed/optim/test_zero_redundancy_optimizer.py: those with DDP.
TEST_ZERO_REDUNDANCY_OPTIMIZER: "dict[str, str]" = {
    "test_local_optimizer_parity": OPTIMIZERS + "zero",
    "test_zero_join_cpu": OPTIMIZERS + "zero_with_join",
    "test_zero_join_gpu": OPTIMIZERS + "zero_with_join",
    "test_zero_model_parallel": _TWO_GPUS,
    "test_ddp_zero_overlap": _OVERLAP,
}

#: torch/testing/_internal/distributed/ddp_under_dist_autograd_test.py
DDP_UNDER_DIST_AUTOGRAD_TEST: "dict[str, str]" = dict.fromkeys(
    (
        "test_backward_no_ddp",
        "test_backward_ddp_outside",
        "test_backward_ddp_outside_uneven_inputs",
        "test_backward_ddp_inside",
        "test_ddp_comparison",
        "test_ddp_comparison_uneven_inputs",
        "test_ddp_dist_autograd_sparse_grads",
        "test_ddp_dist_autograd_local_vs_remote",
        "test_ddp_dist_autograd_local_vs_remote_gpu",
    ),
    _RPC,
)

FILES: "dict[str, dict[str, str]]" = {
    "test/distributed/algorithms/ddp_comm_hooks/test_ddp_hooks.py": TEST_DDP_HOOKS,
    "test/distributed/test_c10d_gloo.py": TEST_C10D_GLOO,
    "torch/testing/_internal/distributed/distributed_test.py": DISTRIBUTED_TEST,
    "torch/testing/_internal/distributed/ddp_under_dist_autograd_test.py": DDP_UNDER_DIST_AUTOGRAD_TEST,
    "test/distributed/optim/test_zero_redundancy_optimizer.py": TEST_ZERO_REDUNDANCY_OPTIMIZER,
}
