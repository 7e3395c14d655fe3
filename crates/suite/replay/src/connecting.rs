//! The calls of the recording, made here: connectors, listeners, shared endpoints.

use std::ffi::c_void;

use interpose::Function;
use ndkpi::{NDK_ADAPTER, NDK_CONNECTOR, NDK_LISTENER, NDK_QP, NDK_SHARED_ENDPOINT, NtStatus};
use recording::{Arguments, Connect, OutBytes, Record};

use crate::{
    addresses::Raw,
    answers::{Events, connecting, disconnected},
    calls::{Made, function, object},
    player::{Answer, Player},
};

/// Bytes of an answer that a call has room for.
const MOST: u32 = 1024;

/// Private data, as it was recorded: its bytes, and the length that the consumer has said.
fn private(connect: &Connect) -> (*const c_void, u32) {
    let bytes = &connect.private_data.bytes;
    let there = u32::try_from(bytes.len()).unwrap_or(0);
    // What was too long to be kept is too long for every adapter: as many as there are.
    let length = connect.private_data_length.min(there);
    if length == 0 { (std::ptr::null(), 0) } else { (bytes.as_ptr().cast(), length) }
}

/// `NDK_FN_DISCONNECT_EVENT_CALLBACK_EX`.
///
/// # Safety
///
/// The context is of [`Events::context`].
unsafe extern "system" fn disconnected_ex(context: *mut c_void, _: u32) {
    // SAFETY: `context` came from `Events::context` (`# Safety`).
    unsafe { disconnected(context) };
}

impl Player<'_> {
    /// Makes a call that is about connections.
    pub fn connect_call(&mut self, record: &Record) -> Made {
        match record.function {
            Function::CreateConnector | Function::CreateListener | Function::CreateSharedEndpoint => {
                self.create_end(record)
            }
            Function::Listen | Function::GetListenerLocalAddress | Function::ControlConnectEvents => {
                self.on_listener(record)
            }
            Function::GetSharedEndpointLocalAddress => {
                let endpoint = object!(self, record, record.object, NDK_SHARED_ENDPOINT);
                let function = function!(self, record, endpoint, NdkGetLocalAddress);
                Ok(Self::address(record, |place, length| {
                    // SAFETY: an open endpoint, and room for as many bytes as are said.
                    unsafe { function(endpoint, place.cast(), length) }
                }))
            }
            Function::Connect
            | Function::ConnectWithSharedEndpoint
            | Function::CompleteConnect
            | Function::CompleteConnectEx
            | Function::Accept
            | Function::AcceptEx
            | Function::Reject
            | Function::Disconnect
            | Function::GetConnectionData
            | Function::GetLocalAddress
            | Function::GetPeerAddress => self.on_connector(record),
            _ => Ok(Answer::Nothing),
        }
    }

    fn create_end(&mut self, record: &Record) -> Made {
        let Some(adapter) = self.adapters.get(&record.adapter).copied() else {
            return Ok(self.leave_out(record, "there is no such adapter"));
        };
        let adapter: *mut NDK_ADAPTER = adapter;
        let events = self.objects.new_events();
        self.expected.insert((record.adapter, record.call), events.clone());
        Ok(match &record.arguments {
            Arguments::CreateListener { has_event, .. } => {
                let function = function!(self, record, adapter, NdkCreateListener);
                let callback = has_event.then_some(connecting as _);
                Self::create(record, |completion, context, out| {
                    let own = Events::context(&events);
                    // SAFETY: an open adapter, callbacks whose contexts live as long as the replay, and a place that lives until
                    // the call returns.
                    unsafe { function(adapter, callback, own, completion, context, out) }
                })
            }
            Arguments::CreateSharedEndpoint { address } => {
                let function = function!(self, record, adapter, NdkCreateSharedEndpoint);
                let address = self.ports.translate(address);
                Self::create(record, |completion, context, out| {
                    // SAFETY: an open adapter, an address of that length, and a place that lives until the call returns.
                    unsafe { function(adapter, address.pointer(), address.length(), completion, context, out) }
                })
            }
            _ => {
                let function = function!(self, record, adapter, NdkCreateConnector);
                Self::create(record, |completion, context, out| {
                    // SAFETY: an open adapter, and a place that lives until the call returns.
                    unsafe { function(adapter, completion, context, out) }
                })
            }
        })
    }

    /// A question for an address: `call` gets a place and its length.
    fn address(record: &Record, call: impl FnOnce(*mut u64, *mut u32) -> NtStatus) -> Answer {
        let Arguments::Address { out } = &record.arguments else { return Answer::Nothing };
        let mut room = [0_u64; (MOST / 8) as usize];
        let mut length = out.length.unwrap_or(0).min(MOST);
        let place = if out.buffer == 0 { std::ptr::null_mut() } else { room.as_mut_ptr() };
        let length_place = if out.length.is_some() { &raw mut length } else { std::ptr::null_mut() };
        let status = call(place, length_place);
        let bytes = room.iter().flat_map(|word| word.to_ne_bytes()).take(length.min(MOST) as usize).collect();
        Answer::Address(status, bytes)
    }

    fn on_listener(&mut self, record: &Record) -> Made {
        let listener = object!(self, record, record.object, NDK_LISTENER);
        Ok(match &record.arguments {
            Arguments::Listen { address } => {
                let function = function!(self, record, listener, NdkListen);
                let address = self.ports.translate(address);
                Self::request(record, |completion, context| {
                    // SAFETY: an open listener, and an address of that length that lives until the call returns.
                    unsafe { function(listener, address.pointer(), address.length(), completion, context) }
                })
            }
            Arguments::ControlConnectEvents { pause } => {
                let function = function!(self, record, listener, NdkControlConnectEvents);
                // SAFETY: an open listener.
                unsafe { function(listener, u8::from(*pause)) };
                Answer::Nothing
            }
            _ => {
                let function = function!(self, record, listener, NdkGetLocalAddress);
                Self::address(record, |place, length| {
                    // SAFETY: an open listener, and room for as many bytes as are said.
                    unsafe { function(listener, place.cast(), length) }
                })
            }
        })
    }

    fn on_connector(&mut self, record: &Record) -> Made {
        let connector = object!(self, record, record.object, NDK_CONNECTOR);
        Ok(match (record.function, &record.arguments) {
            (Function::Connect | Function::ConnectWithSharedEndpoint, Arguments::Connect(connect)) => {
                return self.connect(record, connector, connect);
            }
            (Function::Accept | Function::AcceptEx, Arguments::Connect(connect)) => {
                return self.accept(record, connector, connect);
            }
            (Function::CompleteConnect | Function::CompleteConnectEx, arguments) => {
                let told = matches!(arguments, Arguments::Connect(connect) if connect.has_disconnect_event);
                return self.complete_connect(record, connector, told);
            }
            (Function::Reject, Arguments::Connect(connect)) => {
                let function = function!(self, record, connector, NdkReject);
                let (data, length) = private(connect);
                // SAFETY: an open connector, and private data of that length.
                Answer::Status(unsafe { function(connector, data, length) })
            }
            (Function::Disconnect, _) => {
                let function = function!(self, record, connector, NdkDisconnect);
                Self::request(record, |completion, context| {
                    // SAFETY: an open connector.
                    unsafe { function(connector, completion, context) }
                })
            }
            (Function::GetConnectionData, Arguments::GetConnectionData { out, .. }) => {
                return self.connection_data(record, connector, out);
            }
            (Function::GetLocalAddress, _) => {
                let function = function!(self, record, connector, NdkGetLocalAddress);
                Self::address(record, |place, length| {
                    // SAFETY: an open connector, and room for as many bytes as are said.
                    unsafe { function(connector, place.cast(), length) }
                })
            }
            (Function::GetPeerAddress, _) => {
                let function = function!(self, record, connector, NdkGetPeerAddress);
                Self::address(record, |place, length| {
                    // SAFETY: an open connector, and room for as many bytes as are said.
                    unsafe { function(connector, place.cast(), length) }
                })
            }
            _ => Answer::Nothing,
        })
    }

    fn connect(&mut self, record: &Record, connector: *mut NDK_CONNECTOR, connect: &Connect) -> Made {
        let qp = object!(self, record, record.related[0], NDK_QP);
        let (local, remote): (Raw, Raw) = (self.ports.translate(&connect.local), self.ports.translate(&connect.remote));
        let (data, length) = private(connect);
        let (inbound, outbound) = (connect.inbound_reads, connect.outbound_reads);
        if record.function == Function::ConnectWithSharedEndpoint {
            let endpoint = object!(self, record, record.related[1], NDK_SHARED_ENDPOINT);
            let function = function!(self, record, connector, NdkConnectWithSharedEndpoint);
            return Ok(Self::request(record, |completion, context| {
                let (to, to_length) = (remote.pointer(), remote.length());
                // SAFETY: open objects, an address and private data of those lengths that live until the call returns.
                unsafe {
                    function(
                        connector, qp, endpoint, to, to_length, inbound, outbound, data, length, completion, context,
                    )
                }
            }));
        }
        let function = function!(self, record, connector, NdkConnect);
        Ok(Self::request(record, |completion, context| {
            let (from, from_length, to, to_length) =
                (local.pointer(), local.length(), remote.pointer(), remote.length());
            // SAFETY: open objects, addresses and private data of those lengths that live until the call returns.
            unsafe {
                function(
                    connector,
                    qp,
                    from,
                    from_length,
                    to,
                    to_length,
                    inbound,
                    outbound,
                    data,
                    length,
                    completion,
                    context,
                )
            }
        }))
    }

    fn accept(&mut self, record: &Record, connector: *mut NDK_CONNECTOR, connect: &Connect) -> Made {
        let qp = object!(self, record, record.related[0], NDK_QP);
        let (data, length) = private(connect);
        let (inbound, outbound) = (connect.inbound_reads, connect.outbound_reads);
        let events = self.disconnect_events(record);
        let own = Events::context(&events);
        let told = connect.has_disconnect_event;
        if record.function == Function::AcceptEx {
            // SAFETY: an open connector.
            let Some(function) = (unsafe { NDK_CONNECTOR::accept_ex(connector) }) else {
                return Ok(self.leave_out(record, "the provider does not have the function"));
            };
            let callback = told.then_some(disconnected_ex as _);
            return Ok(Self::request(record, |completion, context| {
                // SAFETY: open objects, callbacks whose contexts live as long as the replay, private data of that length.
                unsafe { function(connector, qp, inbound, outbound, data, length, callback, own, completion, context) }
            }));
        }
        let function = function!(self, record, connector, NdkAccept);
        let callback = told.then_some(disconnected as _);
        Ok(Self::request(record, |completion, context| {
            // SAFETY: open objects, callbacks whose contexts live as long as the replay, private data of that length.
            unsafe { function(connector, qp, inbound, outbound, data, length, callback, own, completion, context) }
        }))
    }

    fn complete_connect(&mut self, record: &Record, connector: *mut NDK_CONNECTOR, told: bool) -> Made {
        let events = self.disconnect_events(record);
        let own = Events::context(&events);
        if record.function == Function::CompleteConnectEx {
            // SAFETY: an open connector.
            let Some(function) = (unsafe { NDK_CONNECTOR::complete_connect_ex(connector) }) else {
                return Ok(self.leave_out(record, "the provider does not have the function"));
            };
            let callback = told.then_some(disconnected_ex as _);
            return Ok(Self::request(record, |completion, context| {
                // SAFETY: an open connector, and callbacks whose contexts live as long as the replay.
                unsafe { function(connector, callback, own, completion, context) }
            }));
        }
        let function = function!(self, record, connector, NdkCompleteConnect);
        let callback = told.then_some(disconnected as _);
        Ok(Self::request(record, |completion, context| {
            // SAFETY: an open connector, and callbacks whose contexts live as long as the replay.
            unsafe { function(connector, callback, own, completion, context) }
        }))
    }

    /// The events of a connector, which it may have already.
    fn disconnect_events(&mut self, record: &Record) -> std::sync::Arc<Events> {
        if let Some(events) = self.objects.events(record.object) {
            return events;
        }
        let events = self.objects.new_events();
        self.objects.set_events(record.object, events.clone());
        events
    }

    fn connection_data(&mut self, record: &Record, connector: *mut NDK_CONNECTOR, out: &OutBytes) -> Made {
        let function = function!(self, record, connector, NdkGetConnectionData);
        let (mut inbound, mut outbound) = (0, 0);
        let mut room = [0_u64; (MOST / 8) as usize];
        let mut length = out.length.unwrap_or(0).min(MOST);
        let place = if out.buffer == 0 { std::ptr::null_mut() } else { room.as_mut_ptr().cast() };
        let length_place = if out.length.is_some() { &raw mut length } else { std::ptr::null_mut() };
        // SAFETY: an open connector, and room for as many bytes as are said.
        let status = unsafe { function(connector, &raw mut inbound, &raw mut outbound, place, length_place) };
        Ok(Answer::Status(status))
    }
}
