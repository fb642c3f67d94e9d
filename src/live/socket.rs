//! UDP sockets of Linux: many packets per system call, multicast, the size of the kernel's buffer, packets that it dropped.
//!
//! A receiver has slots for a batch of messages and allocates nothing after it is made. The kernel joins packets of one sender and
//! length to messages (UDP_GRO) where it can, which halves its time for a packet; the receiver divides them again. The kernel's
//! buffer is enlarged beyond its limit where the process may (CAP_NET_ADMIN), to the limit otherwise; [`Receiver::advice`] says what
//! is missing.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::error::{Error, Result};

/// Most packets that are sent, and messages that are received, with a system call.
pub const BATCH: usize = 64;

/// Messages that are received with a system call while the kernel joins packets: 512 KiB, which stay in a core's cache.
const JOINED_BATCH: usize = 8;

/// Bytes for the control data of a received message: the counter of drops and the length of joined packets need 24 each.
const CONTROL_BYTES: usize = 64;

/// Bytes of a slot: the longest message. The bytes between slots let their beginnings take different places in a cache.
const SLOT_BYTES: usize = 1 << 16;
const SLOT_STRIDE: usize = SLOT_BYTES + 4096 + 64;

/// Most packets that the kernel joins to a message.
const MOST_JOINED: usize = 128;

/// Options of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Address and port: an own address, any (0.0.0.0), or a multicast group, which is joined.
    pub address: SocketAddrV4,
    /// Name of the interface on which a group is joined; the system chooses one otherwise.
    pub interface: Option<String>,
    /// Bytes of the kernel's buffer.
    pub buffer_bytes: usize,
    /// Longest packet: a longer one is cut one byte after that, and so has a wrong length.
    pub packet_bytes: usize,
}

impl Options {
    /// Makes options with a buffer of 64 MiB and packets of at most 9216 bytes.
    pub fn new(address: SocketAddrV4) -> Self {
        Self { address, interface: None, buffer_bytes: 64 << 20, packet_bytes: 9216 }
    }
}

/// Place of a packet in a receiver's slots.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: u32,
    bytes: u32,
}

/// Receiver of packets.
#[derive(Debug)]
pub struct Receiver {
    socket: UdpSocket,
    requested: usize,
    granted: usize,
    slots: Box<[u8]>,
    /// Places in `slots` of the packets of the last batch.
    packets: Vec<Place>,
    /// Most bytes of a packet that are kept: one more than the longest right packet has.
    kept_bytes: usize,
    /// Messages of the next batch.
    batch: usize,
    /// The kernel's counter of drops, which wraps.
    last_drops: u32,
    drops: u64,
    timeout: Option<Duration>,
}

impl Receiver {
    /// Opens a socket, joins the group and enlarges the buffer.
    ///
    /// # Errors
    /// [`Error::Parameter`] for impossible sizes or an unknown interface; [`Error::Unavailable`] naming the call that the system refuses.
    pub fn new(options: &Options) -> Result<Self> {
        if !(1..=1 << 16).contains(&options.packet_bytes) {
            return Err(Error::parameter(
                "packet_bytes",
                options.packet_bytes,
                "it must be 1 to 65536",
            ));
        }
        if options.buffer_bytes == 0 || options.buffer_bytes > 1 << 30 {
            return Err(Error::parameter(
                "buffer_bytes",
                options.buffer_bytes,
                "it must be 1 to 2^30",
            ));
        }
        let refused = |call| move |error| refusal(call, options.address, &error);
        // SAFETY: the call has no pointers; a descriptor that it returns is owned by nothing else.
        let socket = match unsafe {
            libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)
        } {
            -1 => return Err(refused("socket")(io::Error::last_os_error())),
            // SAFETY: as above.
            descriptor => UdpSocket::from(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        };
        let group = options.address.ip();
        if group.is_multicast() {
            // Several receivers of a host may join the same group.
            set(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1_i32)
                .map_err(refused("setsockopt(SO_REUSEADDR)"))?;
        }
        bind(&socket, options.address).map_err(refused("bind"))?;
        if group.is_multicast() {
            let membership = libc::ip_mreqn {
                imr_multiaddr: libc::in_addr { s_addr: u32::from(*group).to_be() },
                imr_address: libc::in_addr { s_addr: 0 },
                imr_ifindex: options.interface.as_deref().map_or(Ok(0), interface_index)?,
            };
            set(&socket, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &membership)
                .map_err(refused("setsockopt(IP_ADD_MEMBERSHIP)"))?;
            // Groups that other sockets have joined on this port are not for this one.
            set(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, &0_i32)
                .map_err(refused("setsockopt(IP_MULTICAST_ALL)"))?;
        }
        set(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &1_i32)
            .map_err(refused("setsockopt(SO_RXQ_OVFL)"))?;
        // Kernels before 5.0 join none.
        let _ = set(&socket, libc::SOL_UDP, libc::UDP_GRO, &1_i32);
        let bytes = options.buffer_bytes as i32;
        if set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes).is_err() {
            set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes)
                .map_err(refused("setsockopt(SO_RCVBUF)"))?;
        }
        // The kernel reserves twice the requested size for its bookkeeping, and returns twice.
        let granted = granted(&socket).map_err(refused("getsockopt(SO_RCVBUF)"))? / 2;
        Ok(Self {
            socket,
            requested: options.buffer_bytes,
            granted,
            slots: vec![0; BATCH * SLOT_STRIDE].into_boxed_slice(),
            packets: Vec::with_capacity(BATCH * MOST_JOINED),
            kept_bytes: options.packet_bytes + 1,
            batch: BATCH,
            last_drops: 0,
            drops: 0,
            timeout: None,
        })
    }

    /// Returns the port, which the system has chosen if 0 was asked for.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the system does not say it.
    pub fn port(&self) -> Result<u16> {
        let address = self.socket.local_addr();
        let none = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Ok(address.map_err(|error| refusal("getsockname", none, &error))?.port())
    }

    /// Waits for packets until the first arrives, or for `timeout`, and returns how many there are: 0 after the timeout.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a timeout of 0; [`Error::Unavailable`] if the system fails.
    pub fn receive(&mut self, timeout: Duration) -> Result<usize> {
        let none = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        if timeout.is_zero() {
            return Err(Error::parameter("timeout", 0, "it must be longer than 0"));
        }
        if self.timeout != Some(timeout) {
            let set = self.socket.set_read_timeout(Some(timeout));
            set.map_err(|error| refusal("setsockopt(SO_RCVTIMEO)", none, &error))?;
            self.timeout = Some(timeout);
        }
        self.take(libc::MSG_WAITFORONE)
    }

    /// Returns how many packets have arrived, without waiting.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the system fails.
    pub fn receive_now(&mut self) -> Result<usize> {
        self.take(libc::MSG_DONTWAIT)
    }

    /// Receives a batch as the flags of the system call say; returns the number of its packets.
    fn take(&mut self, flags: libc::c_int) -> Result<usize> {
        let none = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        self.packets.clear();
        // SAFETY: all three are plain data, for which zeros are valid.
        let (mut messages, mut parts): ([libc::mmsghdr; BATCH], [libc::iovec; BATCH]) =
            unsafe { (zeroed(), zeroed()) };
        let mut controls = [[0_u64; CONTROL_BYTES / 8]; BATCH];
        let slots = self.slots.chunks_exact_mut(SLOT_STRIDE).take(self.batch);
        for (((message, part), control), slot) in
            messages.iter_mut().zip(&mut parts).zip(&mut controls).zip(slots)
        {
            *part = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: SLOT_BYTES };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        }
        // SAFETY: each of the first `batch` messages has a slot, a part and control data of its own, of the lengths given, which
        // outlive the call.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                self.batch as _,
                flags as _,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(refusal("recvmmsg", none, &error)),
            };
        }
        let messages = &messages[..count as usize];
        for (slot, message) in messages.iter().enumerate() {
            let control = Control::of(&message.msg_hdr);
            if let Some(drops) = control.drops {
                self.drops += u64::from(drops.wrapping_sub(self.last_drops));
                self.last_drops = drops;
            }
            let bytes = (message.msg_len as usize).min(SLOT_BYTES);
            self.divide(slot * SLOT_STRIDE, bytes, control.packet_bytes.unwrap_or(bytes));
        }
        self.batch = if self.packets.len() > messages.len() { JOINED_BATCH } else { BATCH };
        Ok(self.packets.len())
    }

    /// Divides a message that lies at `start` into packets of `packet_bytes` bytes, of which the last may be shorter.
    fn divide(&mut self, start: usize, bytes: usize, packet_bytes: usize) {
        let mut first = 0;
        loop {
            if self.packets.len() == self.packets.capacity() {
                // The kernel joins fewer packets than this.
                self.drops += (bytes - first).div_ceil(packet_bytes.max(1)) as u64;
                return;
            }
            let kept = packet_bytes.min(bytes - first).min(self.kept_bytes);
            self.packets.push(Place { start: (start + first) as u32, bytes: kept as u32 });
            first += packet_bytes;
            if first >= bytes || packet_bytes == 0 {
                return;
            }
        }
    }

    /// Returns a packet of the last batch.
    ///
    /// # Panics
    /// If the batch has no packet `index`.
    pub fn packet(&self, index: usize) -> &[u8] {
        let Place { start, bytes } = self.packets[index];
        &self.slots[start as usize..][..bytes as usize]
    }

    /// Returns the messages that the kernel dropped since its buffer was full, as of the last packet received: packets, or several that
    /// it had joined.
    pub fn drops(&self) -> u64 {
        self.drops
    }

    /// Returns the bytes of the kernel's buffer.
    pub fn granted_bytes(&self) -> usize {
        self.granted
    }

    /// Returns, if the buffer is smaller than asked for, the sizes and the line that mends it.
    pub fn advice(&self) -> Option<String> {
        (self.granted < self.requested).then(|| {
            format!(
                "the kernel's buffer has {} of {} bytes: without CAP_NET_ADMIN, `sysctl -w net.core.rmem_max={}` allows more",
                self.granted, self.requested, self.requested
            )
        })
    }
}

/// Most receivers of one wait.
pub const MOST_RECEIVERS: usize = 64;

/// Waits until a packet arrives at one of several receivers, or for `timeout`. Receivers after the first [`MOST_RECEIVERS`] are
/// not waited for.
///
/// # Errors
/// [`Error::Unavailable`] if the system fails.
pub fn wait(receivers: &[Receiver], timeout: Duration) -> Result<()> {
    // Negative descriptors are ignored.
    let mut waited = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; MOST_RECEIVERS];
    for (place, receiver) in waited.iter_mut().zip(receivers) {
        place.fd = receiver.socket.as_raw_fd();
    }
    let milliseconds = timeout.as_millis().clamp(1, i32::MAX as u128) as i32;
    // SAFETY: the pointer and the length are those of the array, which outlives the call.
    let done = unsafe { libc::poll(waited.as_mut_ptr(), waited.len() as _, milliseconds) };
    if done >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        _ => Err(refusal("poll", SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), &error)),
    }
}

/// Sender of packets to one address.
#[derive(Debug)]
pub struct Sender {
    socket: UdpSocket,
    address: SocketAddrV4,
    /// Whether the kernel divides messages into packets (UDP_SEGMENT), as it does until it refuses one.
    divides: bool,
}

impl Sender {
    /// Opens a socket; `interface` is the one through which a multicast group is reached.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an unknown interface; [`Error::Unavailable`] naming the call that the system refuses.
    pub fn new(address: SocketAddrV4, interface: Option<&str>) -> Result<Self> {
        let refused = |call| move |error| refusal(call, address, &error);
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(refused("bind"))?;
        if let (Some(name), true) = (interface, address.ip().is_multicast()) {
            let request = libc::ip_mreqn {
                imr_multiaddr: libc::in_addr { s_addr: 0 },
                imr_address: libc::in_addr { s_addr: 0 },
                imr_ifindex: interface_index(name)?,
            };
            set(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)
                .map_err(refused("setsockopt(IP_MULTICAST_IF)"))?;
        }
        socket.connect(address).map_err(refused("connect"))?;
        Ok(Self { socket, address, divides: true })
    }

    /// Sends packets in their order, a batch per system call. Consecutive packets of the same length pass the kernel as one message
    /// where it can divide it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the system's reason, such as a packet that is too long.
    pub fn send(&mut self, packets: &[&[u8]]) -> Result<()> {
        for batch in packets.chunks(BATCH) {
            let mut sent = 0;
            while sent < batch.len() {
                sent += self.send_some(&batch[sent..])?;
            }
        }
        Ok(())
    }

    /// Sends at least one of at most a batch of packets, and returns how many, or 0 after a signal or if the kernel divides none
    /// from then on.
    fn send_some(&mut self, packets: &[&[u8]]) -> Result<usize> {
        // SAFETY: both are plain data, for which zeros are valid.
        let (mut messages, mut parts): ([libc::mmsghdr; BATCH], [libc::iovec; BATCH]) =
            unsafe { (zeroed(), zeroed()) };
        let mut controls = [[0_u64; SEGMENT_BYTES / 8]; BATCH];
        let packets = &packets[..packets.len().min(BATCH)];
        for (part, packet) in parts.iter_mut().zip(packets) {
            // The kernel only reads what is sent.
            let base = packet.as_ptr().cast_mut().cast();
            *part = libc::iovec { iov_base: base, iov_len: packet.len() };
        }
        let (mut count, mut first) = (0, 0);
        let mut ends = [0; BATCH];
        while first < packets.len() {
            let bytes = packets[first].len();
            let joined = if self.divides { joined(&packets[first..]) } else { 1 };
            let header = &mut messages[count].msg_hdr;
            header.msg_iov = &mut parts[first];
            header.msg_iovlen = joined as _;
            if joined > 1 {
                header.msg_control = controls[count].as_mut_ptr().cast();
                header.msg_controllen = SEGMENT_BYTES as _;
                divide(header, bytes as u16);
            }
            first += joined;
            ends[count] = first;
            count += 1;
        }
        // SAFETY: the first `count` messages have parts that lie in their packets, and control data of the length given; all
        // outlive the call.
        let sent = unsafe {
            libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), count as _, 0)
        };
        if sent >= 0 {
            return Ok(if sent == 0 { 0 } else { ends[sent as usize - 1] });
        }
        let error = io::Error::last_os_error();
        if ends[0] > 1
            && matches!(
                error.raw_os_error(),
                Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO | libc::EOPNOTSUPP)
            )
        {
            // The interface cannot, or its packets are shorter than these.
            self.divides = false;
            return Ok(0);
        }
        match error.kind() {
            // A refusal is that of a packet before, which nobody received.
            io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused => Ok(0),
            _ => Err(refusal("sendmmsg", self.address, &error)),
        }
    }
}

/// Bytes for the control data of a message that the kernel divides: the length of its packets needs 24.
const SEGMENT_BYTES: usize = 24;

/// Most bytes and packets of a message that the kernel divides.
const MESSAGE_BYTES: usize = 65_000;
const MESSAGE_PACKETS: usize = 64;

/// Returns how many of the first packets have the same length and fit one message.
fn joined(packets: &[&[u8]]) -> usize {
    let bytes = packets[0].len();
    let most = (MESSAGE_BYTES / bytes.max(1)).min(MESSAGE_PACKETS);
    let same = packets.iter().take(most).take_while(|packet| packet.len() == bytes).count();
    if bytes == 0 { 1 } else { same.max(1) }
}

/// Asks the kernel to divide a message, whose control data has [`SEGMENT_BYTES`] bytes, into packets of `bytes` bytes.
fn divide(message: &libc::msghdr, bytes: u16) {
    // SAFETY: the control data have space for one header and this value, which the macros stay within.
    unsafe {
        if let Some(header) = libc::CMSG_FIRSTHDR(message).as_mut() {
            header.cmsg_level = libc::SOL_UDP;
            header.cmsg_type = libc::UDP_SEGMENT;
            header.cmsg_len = libc::CMSG_LEN(size_of::<u16>() as _) as _;
            libc::CMSG_DATA(header).cast::<u16>().write_unaligned(bytes);
        }
    }
}

fn refusal(call: &str, address: SocketAddrV4, error: &io::Error) -> Error {
    let what = if address.port() == 0 && address.ip().is_unspecified() {
        format!("the system call {call}")
    } else {
        format!("the system call {call} for {address}")
    };
    Error::Unavailable { what, why: error.to_string() }
}

fn interface_index(name: &str) -> Result<i32> {
    let unknown = || Error::parameter("interface", name, "it must be the name of an interface");
    let text = CString::new(name).map_err(|_| unknown())?;
    // SAFETY: the text ends with a NUL and outlives the call.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Err(unknown()),
        index => Ok(index as i32),
    }
}

/// Sets an option of a socket, whose value is plain data of the kernel's layout.
fn set<T: Copy>(socket: &UdpSocket, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of the value, which outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of_val(value) as _,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn granted(socket: &UdpSocket) -> io::Result<usize> {
    let (mut bytes, mut length) = (0_i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the pointers are those of the two variables, and the length is that of the first.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            std::ptr::from_mut(&mut bytes).cast(),
            &mut length,
        )
    };
    if done == 0 { Ok(bytes.max(0) as usize) } else { Err(io::Error::last_os_error()) }
}

fn bind(socket: &UdpSocket, address: SocketAddrV4) -> io::Result<()> {
    // SAFETY: the address is plain data, for which zeros are valid.
    let mut name: libc::sockaddr_in = unsafe { zeroed() };
    name.sin_family = libc::AF_INET as _;
    name.sin_port = address.port().to_be();
    name.sin_addr.s_addr = u32::from(*address.ip()).to_be();
    // SAFETY: the pointer and the length are those of the address, which outlives the call.
    let done = unsafe {
        libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&name).cast(), size_of_val(&name) as _)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Control data of a received message.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    /// The kernel's counter of dropped messages.
    drops: Option<u32>,
    /// Bytes of the packets that the kernel has joined to the message.
    packet_bytes: Option<usize>,
}

impl Control {
    /// Reads the control data of a message that the kernel filled.
    fn of(message: &libc::msghdr) -> Self {
        let mut control = Self::default();
        // SAFETY: the kernel wrote the control data and their length, which the macros stay within.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(message);
            while let Some(header) = next.as_ref() {
                let data = libc::CMSG_DATA(next);
                match (header.cmsg_level, header.cmsg_type) {
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                        control.drops = Some(data.cast::<u32>().read_unaligned());
                    }
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        let bytes = data.cast::<i32>().read_unaligned();
                        control.packet_bytes =
                            usize::try_from(bytes).ok().filter(|bytes| *bytes > 0);
                    }
                    _ => {}
                }
                next = libc::CMSG_NXTHDR(message, next);
            }
        }
        control
    }
}
