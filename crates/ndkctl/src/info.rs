//! `ndkctl info`: what the adapter says of itself, and what idle objects cost.

use bench::allocated;
use conformance::host::{HostPlatform, Setup};
use conformance::{
    HELD, Stop,
    client::{Options, QpSizes, Session},
};
use host::say;
use ndkpi::{
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED,
    NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED, NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED,
    NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED, NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED,
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED, NDK_ADAPTER_INFO, NDK_VERSION,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    End,
    args::Info,
    output::{bytes, print_json, print_table, table},
};

/// Objects that are made to measure one.
const MANY: usize = 256;

/// What one idle object takes.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cost {
    object: &'static str,
    depth: u32,
    bytes: usize,
}

/// Runs the command.
pub fn run(args: &Info) -> Result<End, String> {
    let platform = HostPlatform::start(Setup::default()).map_err(|status| format!("no machine: {status}"))?;
    let options = Options { name: "info", version: args.ndkpi.version(), seed: 0, hostile: false };
    let mut found = None;
    let verdict = Session::with(&platform, &options, |session| {
        let costs = if args.memory { Some(costs(session)?) } else { None };
        found = Some((*session.info()?, session.version()?, costs));
        HELD
    });
    let ended = platform.finish();
    let (info, version, costs) = match (verdict, found) {
        (Ok(_), Some(found)) => found,
        (Err(Stop::Failed(text) | Stop::Skipped(text)), _) => return Err(text.as_str().to_owned()),
        (Ok(_), None) => return Err("the adapter says nothing".to_owned()),
    };
    ended?;
    if args.json {
        print_json(&as_json(&info, version, costs.as_deref()))?;
    } else {
        print(&info, version, costs.as_deref());
    }
    Ok(End::Good)
}

/// Makes many objects of a kind and looks how much more memory is in use.
fn costs(session: &Session<'_>) -> Result<Vec<Cost>, Stop> {
    let adapter = session.adapter()?;
    let mut costs = Vec::new();
    for depth in [16, 128, 1024] {
        let mut queues = Vec::with_capacity(MANY);
        let before = allocated::in_use();
        for _ in 0..MANY {
            queues.push(adapter.create_cq(depth, None)?);
        }
        let cost = allocated::in_use() - before;
        costs.push(Cost { object: "completion queue", depth, bytes: cost / MANY });
    }
    let pd = adapter.create_pd()?;
    let cq = adapter.create_cq(16, None)?;
    for depth in [16, 128, 1024] {
        let sizes =
            QpSizes { receive_depth: depth, initiator_depth: depth, receive_sge: 1, initiator_sge: 1, inline: 0 };
        let mut pairs = Vec::with_capacity(MANY);
        // What a completion queue keeps of its queue pairs grows in steps.
        let first = pd.core().create_qp(cq.core(), cq.core(), 0, sizes)?;
        let before = allocated::in_use();
        for _ in 0..MANY {
            pairs.push(pd.core().create_qp(cq.core(), cq.core(), 0, sizes)?);
        }
        let cost = allocated::in_use() - before;
        costs.push(Cost { object: "queue pair, both queues", depth, bytes: cost / MANY });
        drop(first);
    }
    Ok(costs)
}

/// The fields in order: name, value, meaning.
fn fields(info: &NDK_ADAPTER_INFO) -> Vec<(&'static str, Value, String, &'static str)> {
    let number = |value: u32| (json!(value), value.to_string());
    let size = |value: usize| (json!(value), bytes(value as u64));
    let length = |value: u32| (json!(value), bytes(value.into()));
    let hex = |value: u32| (json!(value), format!("{value:#010x}"));
    [
        ("VendorId", hex(info.VendorId), "who made it"),
        ("DeviceId", hex(info.DeviceId), "what it is"),
        ("MaxRegistrationSize", size(info.MaxRegistrationSize), "a memory region"),
        ("MaxWindowSize", size(info.MaxWindowSize), "a memory window"),
        ("FRMRPageCount", number(info.FRMRPageCount), "pages of a fast registration"),
        ("MaxInitiatorRequestSge", number(info.MaxInitiatorRequestSge), "elements of an initiator request"),
        ("MaxReceiveRequestSge", number(info.MaxReceiveRequestSge), "elements of a receive"),
        ("MaxReadRequestSge", number(info.MaxReadRequestSge), "elements of a read"),
        ("MaxTransferLength", length(info.MaxTransferLength), "one request"),
        ("MaxInlineDataSize", length(info.MaxInlineDataSize), "inline in one send or write"),
        ("MaxInboundReadLimit", number(info.MaxInboundReadLimit), "reads of the peer in progress"),
        ("MaxOutboundReadLimit", number(info.MaxOutboundReadLimit), "own reads in progress"),
        ("MaxReceiveQueueDepth", number(info.MaxReceiveQueueDepth), "receives outstanding"),
        ("MaxInitiatorQueueDepth", number(info.MaxInitiatorQueueDepth), "initiator requests outstanding"),
        ("MaxSrqDepth", number(info.MaxSrqDepth), "receives in a shared receive queue"),
        ("MaxCqDepth", number(info.MaxCqDepth), "entries of a completion queue"),
        ("LargeRequestThreshold", length(info.LargeRequestThreshold), "above it, read and write beat send"),
        ("MaxCallerData", length(info.MaxCallerData), "private data of a connect"),
        ("MaxCalleeData", length(info.MaxCalleeData), "private data of an accept or reject"),
        ("RdmaTechnology", (json!(info.RdmaTechnology.0), format!("{:?}", info.RdmaTechnology)), "the protocol below"),
    ]
    .into_iter()
    .map(|(name, (value, text), meaning)| (name, value, text, meaning))
    .collect()
}

const FLAGS: [(u32, &str); 7] = [
    (NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED, "IN_ORDER_DMA_SUPPORTED"),
    (NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED, "RDMA_READ_SINK_NOT_REQUIRED"),
    (NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, "CQ_INTERRUPT_MODERATION_SUPPORTED"),
    (NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED, "MULTI_ENGINE_SUPPORTED"),
    (NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED, "RDMA_READ_LOCAL_INVALIDATE_SUPPORTED"),
    (NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED, "CQ_RESIZE_SUPPORTED"),
    (NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED, "LOOPBACK_CONNECTIONS_SUPPORTED"),
];

fn flags(info: &NDK_ADAPTER_INFO) -> Vec<&'static str> {
    FLAGS.iter().filter(|(flag, _)| info.AdapterFlags & flag != 0).map(|(_, name)| *name).collect()
}

fn print(info: &NDK_ADAPTER_INFO, version: NDK_VERSION, costs: Option<&[Cost]>) {
    let mut list = table(&["NDK_ADAPTER_INFO", "value", "of"]);
    list.add_row(["Version".to_owned(), version.to_string(), "the version in force".to_owned()]);
    for (name, _, text, meaning) in fields(info) {
        list.add_row([name.to_owned(), text, meaning.to_owned()]);
    }
    for (row, name) in flags(info).into_iter().enumerate() {
        let heading = if row == 0 { "AdapterFlags" } else { "" };
        list.add_row([heading, name, ""]);
    }
    print_table(&list);
    if let Some(costs) = costs {
        say!();
        let mut list = table(&["idle object", "depth", "memory"]);
        for Cost { object, depth, bytes } in costs {
            list.add_row([(*object).to_owned(), depth.to_string(), format!("{bytes} bytes")]);
        }
        print_table(&list);
    }
}

fn as_json(info: &NDK_ADAPTER_INFO, version: NDK_VERSION, costs: Option<&[Cost]>) -> Value {
    let mut map = Map::new();
    map.insert("Version".to_owned(), json!(version.to_string()));
    for (name, value, _, _) in fields(info) {
        map.insert(name.to_owned(), value);
    }
    map.insert("AdapterFlags".to_owned(), json!(flags(info)));
    if let Some(costs) = costs {
        map.insert("memory".to_owned(), json!(costs));
    }
    Value::Object(map)
}
