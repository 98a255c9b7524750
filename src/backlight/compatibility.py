"""What PyTorch has among its public names and Backlight leaves out, or has in part, each with the reason.

`backlight check` and docs/compatibility.md tell it to users; tests/test_names.py holds it against both packages.
"""

from __future__ import annotations

from typing import NamedTuple

SPARSE = "sparse layouts: Backlight has dense arrays only"
QUANTISED = "quantised tensors: NumPy has no such types"
TYPES = "NumPy has no such element type"
NESTED = "nested and jagged tensors"
COMPILER = "TorchScript, torch.fx and torch.compile: Backlight runs eagerly"
SYMBOLS = "symbolic sizes of torch.compile: sizes are Python ints here"
DEVICES = "other devices than the CPU"
VENDOR = "vendor kernels behind public operations (cuDNN, MIOpen, MKL-DNN, FBGEMM)"
BACKEND = "a kernel behind public operations, not meant to be called by programs"
POSITIONAL = "stands behind the nn.functional function of that name, with its reduction as a number; use nn.functional"
STORAGE = "storages: a tensor's memory is its NumPy array, `tensor.array`; files of torch.save name them all the same"
AUTOCAST = "a part of autocast that only its own code calls, or for other devices"
REMOVED = "removed from PyTorch: calling it raises there too"
INTERNAL = "an internal of PyTorch that its namespace shows by accident"
PROTOTYPE = "a prototype in PyTorch, subject to change"
BUILD = "tells what PyTorch was built with"
GRADIENT_TYPE = "a gradient always has its tensor's type here"
DATAPIPES = "DataPipes, which PyTorch deprecated: use Dataset and DataLoader"
TYPING = "a name for type checkers, or text of the documentation"
PROTOCOL = "PyTorch's own machinery for subclasses and modes that replace the dispatcher"


def table(groups: dict[str, str]) -> dict[str, str]:
    """{name: reason} from {reason: names}."""
    return {name: reason for reason, names in groups.items() for name in names.split()}


# What isn't there: {place: {name: why}}.
LEFT_OUT: dict[str, dict[str, str]] = {
    "torch": table({
        SPARSE: """ccol_indices_copy col_indices_copy crow_indices_copy row_indices_copy indices_copy values_copy dsmm hsmm hspmm smm
        spmm saddmm sspaddmm resize_as_sparse_ sparse_bsc sparse_bsc_tensor sparse_bsr sparse_bsr_tensor sparse_compressed_tensor
        sparse_coo_tensor sparse_csc sparse_csc_tensor sparse_csr sparse_csr_tensor""",
        QUANTISED: """QInt32Storage QInt8Storage QUInt2x4Storage QUInt4x2Storage QUInt8Storage choose_qparams_optimized dequantize
        empty_quantized fake_quantize_per_channel_affine fake_quantize_per_tensor_affine fused_moving_avg_obs_fake_quant int_repr
        per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine per_tensor_symmetric
        q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qint32 qint8 qscheme
        quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic quantized_batch_norm quantized_gru quantized_gru_cell
        quantized_lstm quantized_lstm_cell quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d
        quantized_rnn_relu_cell quantized_rnn_tanh_cell quint2x4 quint4x2 quint8""",
        TYPES: """bit bits16 bits1x8 bits2x4 bits4x2 bits8 complex32 float4_e2m1fn_x2 float8_e4m3fn float8_e4m3fnuz float8_e5m2
        float8_e5m2fnuz float8_e8m0fnu int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7""",
        NESTED: "jagged",
        COMPILER: """AggregationType AliasDb AnyType Argument ArgumentSpec AwaitType BenchmarkConfig BenchmarkExecutionStats Block
        BoolType CallStack Capsule ClassType Code CompilationUnit CompleteArgumentSpec ComplexType ConcreteModuleType
        ConcreteModuleTypeBuilder DeepCopyMemoTable DeserializationStorageContext DeviceObjType DictType EnumType ErrorReport
        ExecutionPlan FileCheck FloatType FunctionSchema Future FutureType Gradient Graph GraphExecutorState IODescriptor
        InferredType IntType InterfaceType JITException ListType LiteScriptModule LockingLogger LoggerBase ModuleDict Node NoneType
        NoopLogger NumberType OperatorInfo OptionalType ParameterDict BufferDict PyObjectType PyTorchFileReader PyTorchFileWriter
        RRefType ScriptClass ScriptClassFunction ScriptDict ScriptDictIterator ScriptDictKeyIterator ScriptFunction ScriptList
        ScriptListIterator ScriptMethod ScriptModule ScriptModuleSerializer ScriptObject ScriptObjectProperty
        SerializationStorageContext StaticModule StreamObjType StringType SymBoolType SymIntType TensorType ThroughputBenchmark
        TracingState TupleType Type UnionType Use Value AVG SUM cond while_loop fork wait import_ir_module
        import_ir_module_from_buffer merge_type_from_type_comment parse_ir parse_schema parse_type_comment unify_type_list""",
        SYMBOLS: """SymBool SymFloat SymInt sym_constrain_range sym_constrain_range_for_size sym_float sym_fresh_size sym_int sym_ite
        sym_max sym_min sym_not sym_sqrt sym_sum""",
        DEVICES: "Event Stream get_device_module is_vulkan_available",
        VENDOR: """cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu
        cudnn_convolution_transpose cudnn_grid_sampler cudnn_is_acceptable fbgemm_linear_fp16_weight
        fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation
        fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix miopen_batch_norm miopen_convolution
        miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss
        miopen_depthwise_convolution miopen_rnn mkldnn_adaptive_avg_pool2d mkldnn_convolution mkldnn_linear_backward_weights
        mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer""",
        BACKEND: """affine_grid_generator batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt
        batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats convolution
        embedding_bag embedding_renorm_ native_batch_norm native_group_norm native_layer_norm native_norm slice_inverse""",
        POSITIONAL: """binary_cross_entropy_with_logits cosine_embedding_loss hinge_embedding_loss kl_div margin_ranking_loss
        poisson_nll_loss triplet_margin_loss""",
        STORAGE: """BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage DoubleStorage
        FloatStorage HalfStorage IntStorage LongStorage ShortStorage Storage StorageBase from_file""",
        AUTOCAST: """autocast_decrement_nesting autocast_increment_nesting
        get_autocast_gpu_dtype get_autocast_ipu_dtype get_autocast_xla_dtype
        is_autocast_ipu_enabled is_autocast_xla_enabled
        set_autocast_gpu_dtype set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype set_autocast_xla_enabled""",
        REMOVED: "eig lstsq matrix_rank solve symeig",
        INTERNAL: """FatalError PRIVATE_OPS TYPE_CHECKING Tag USE_GLOBAL_DEPS USE_RTLD_GLOBAL_WITH_LIBTORCH classproperty
        get_file_path init_num_threads legacy_contiguous_format prepare_multiprocessing_environment
        profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 thread_safe_generator to_dlpack""",
        PROTOTYPE: "hash_tensor segment_reduce lobpcg",
        BUILD: "compiled_with_cxx11_abi has_lapack has_mkl has_openmp has_spectral",
        PROTOCOL: "DisableTorchFunction DisableTorchFunctionSubclass DispatchKey DispatchKeySet ExcludeDispatchKeyGuard",
    }),
    "torch.Tensor": table({
        SPARSE: """ccol_indices coalesce col_indices crow_indices indices is_coalesced resize_as_sparse_ row_indices smm sparse_mask
        sparse_resize_ sparse_resize_and_clear_ sspaddmm to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc
        to_sparse_csr values""",
        QUANTISED: """dequantize int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point
        qscheme""",
        TYPES: "chalf",
        NESTED: "to_padded_tensor",
        DEVICES: "ipu mtia record_stream xpu to_mkldnn",
        STORAGE: "storage_type",
        REMOVED: "eig lstsq reinforce solve symeig",
        BACKEND: "slice_inverse",
        PROTOTYPE: "hash_tensor index",
        PROTOCOL: "module_load",
        GRADIENT_TYPE: "grad_dtype",
    }),
    "torch.nn.functional": table({
        INTERNAL: """BroadcastingList1 BroadcastingList2 BroadcastingList3 Callable DType GRID_SAMPLE_INTERPOLATION_MODES
        GRID_SAMPLE_PADDING_MODES Optional TYPE_CHECKING Tensor assert_int_or_pair boolean_dispatch reproducibility_notes
        sparse_support_notes tf32_notes""",
        PROTOCOL: "handle_torch_function has_torch_function has_torch_function_unary has_torch_function_variadic",
        QUANTISED: "ScalingType SwizzleType scaled_grouped_mm scaled_mm",
        PROTOTYPE: "grouped_mm",
    }),
    "torch.nn": table({TYPING: "factory_kwargs"}),
    "torch.autograd": table({GRADIENT_TYPE: "enforce_grad_layout_policy"}),
    "torch.func": table({
        COMPILER: "functionalize",
        "shows the tensors inside a transform, which have another form here": "debug_unwrap",
        "einops.rearrange does it, for Backlight's tensors too once they are arrays": "rearrange",
    }),
    "torch.linalg": table({TYPING: "common_notes"}),
    "torch.fft": table({TYPING: "Tensor"}),
    "torch.utils.data": table({
        DATAPIPES: """DFIterDataPipe DataChunk IterDataPipe MapDataPipe argument_validation functional_datapipe
        guaranteed_datapipes_determinism non_deterministic runtime_validation runtime_validation_disabled""",
    }),
    "torch.testing": table({COMPILER: "FileCheck"}),
}  # fmt: skip


class Part(NamedTuple):
    """What is missing of something that is there. With `keywords` it concerns only calls that use one of them."""

    text: str
    keywords: tuple[str, ...] = ()


_SPARSE_GRADIENT = Part("sparse=True is refused: there are no sparse gradients", ("sparse",))
_ON_ARRAYS = Part(
    "differentiable=True and capturable=True are refused: a step works on arrays", ("differentiable", "capturable")
)
# What is there, but not whole: {place: {name: what is missing or different}}.
PARTLY: dict[str, dict[str, Part]] = {
    "torch.distributed": {"init_process_group": Part("store is ignored: MPI knows the ranks", ("store",))},
    "torch.nn.parallel": {
        "DistributedDataParallel": Part("mixed_precision and device_mesh are refused", ("mixed_precision", "device_mesh"))
    },
    "torch.onnx": {"export": Part("raises: Backlight has no compiled graphs")},
    "torch.hub": dict.fromkeys(
        ("download_url_to_file", "load", "load_state_dict_from_url"), Part("raises: nothing is downloaded, and no code run")
    ),
    "torch": {
        "compile": Part("returns its argument, and says so once"),
        "set_num_threads": Part("for kernels; for BLAS, where threadpoolctl is installed"),
        "load": Part("reads pickles itself and safely, with no other pickle_module", ("pickle_module",)),
        "save": Part("writes the zip format only", ("_use_new_zipfile_serialization", "pickle_module")),
        "set_default_device": Part("the CPU only"),
    },
    "torch.Tensor": {
        "as_strided_": Part("not for tensors that require grad"),
        "cuda": Part("raises, as there is no CUDA"),
        "is_conj": Part("always False: conj() computes at once"),
        "is_neg": Part("always False: negatives are computed at once"),
        "share_memory_": Part("memory is shared with processes that are forked afterwards; views keep the old memory"),
    },
    "torch.nn": {
        "DataParallel": Part("calls its module, as PyTorch without GPUs"),
        "Embedding": _SPARSE_GRADIENT,
        "EmbeddingBag": _SPARSE_GRADIENT,
        "LinearCrossEntropyLoss": Part("options are checked and change nothing", ("options",)),
    },
    "torch.nn.functional": {
        "embedding": _SPARSE_GRADIENT,
        "embedding_bag": _SPARSE_GRADIENT,
        "linear_cross_entropy": Part("options are ignored: the result is the same without", ("options",)),
    },
    "torch.optim": {
        **dict.fromkeys("ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax NAdam RAdam RMSprop Rprop SGD".split(), _ON_ARRAYS),
        "SparseAdam": Part("raises: there are no sparse gradients"),
    },
    "torch.func": {"vmap": Part("operations without a rule run in a loop, with a warning")},
    "torch.utils.data": {
        "DataLoader": Part("pin_memory changes nothing", ("pin_memory",)),
    },
}
# Modules that aren't there, or not as programs know them: {the beginning of a path: why}.
MODULES = {
    "torch.ao": QUANTISED,
    "torch.cuda": DEVICES,
    "torch.distributed": "of it there are collectives, data parallelism, rpc and distributed autograd",
    "torch.export": COMPILER,
    "torch.fx": COMPILER,
    "torch.jit": COMPILER,
    "torch.nested": NESTED,
    "torch.nn.intrinsic": QUANTISED,
    "torch.nn.qat": QUANTISED,
    "torch.nn.quantizable": QUANTISED,
    "torch.nn.quantized": QUANTISED,
    "torch.ops": "PyTorch's registry of kernels",
    "torch.package": "stores code with models",
    "torch.quantization": QUANTISED,
    "torch.sparse": SPARSE,
    "torch.xpu": DEVICES,
}
