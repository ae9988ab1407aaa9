//! Memory of the GPU, and memory of the host that the GPU can reach.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{result as driver, sys};

use super::card::Left;
use super::device::{Device, fault};
use super::event::Event;
use crate::{Error, Result};

/// An owned run of `T` in the GPU's memory. What is done with it happens in the order of the device's stream.
#[derive(Debug)]
pub struct Buffer<T> {
    device: Arc<Device>,
    address: sys::CUdeviceptr,
    len: usize,
    kind: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// Memory with anything in it.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Buffer<T>> {
        let _current = device.bind()?;
        let bytes = len * size_of::<T>();
        // SAFETY: plain allocation; an empty buffer has no address.
        let address = if bytes == 0 { Ok(0) } else { unsafe { driver::malloc_sync(bytes) } };
        let address =
            address.map_err(|error| fault(&format!("take {bytes} bytes of the GPU's memory"), error))?;
        Ok(Buffer { device: device.clone(), address, len, kind: PhantomData })
    }

    /// No memory yet; [`reserve`](Buffer::reserve) takes some.
    pub fn empty(device: &Arc<Device>) -> Buffer<T> {
        Buffer { device: device.clone(), address: 0, len: 0, kind: PhantomData }
    }

    /// Memory whose bytes are all zero.
    pub fn zeros(device: &Arc<Device>, len: usize) -> Result<Buffer<T>> {
        let mut buffer = Buffer::new(device, len)?;
        buffer.clear()?;
        Ok(buffer)
    }

    /// A copy of what the host has.
    pub fn of(device: &Arc<Device>, values: &[T]) -> Result<Buffer<T>> {
        let mut buffer = Buffer::new(device, values.len())?;
        buffer.write(0, values)?;
        Ok(buffer)
    }

    /// All bytes become zero.
    pub fn clear(&mut self) -> Result<()> {
        self.clear_range(0..self.len)
    }

    /// All bytes of a range become zero.
    pub fn clear_range(&mut self, range: Range<usize>) -> Result<()> {
        assert!(range.start <= range.end && range.end <= self.len, "inside the buffer");
        if range.is_empty() {
            return Ok(());
        }
        let _current = self.device.bind()?;
        // SAFETY: the range lies inside the buffer.
        unsafe {
            driver::memset_d8_async(
                self.at(range.start),
                0,
                range.len() * size_of::<T>(),
                self.device.stream(),
            )
        }
        .map_err(|error| fault("clear memory of the GPU", error))
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device's address of its first element.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The device's address of an element.
    pub fn at(&self, element: usize) -> u64 {
        debug_assert!(element <= self.len);
        self.address + (element * size_of::<T>()) as u64
    }

    /// The device it is on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Copies from the host, and waits for it.
    pub fn write(&mut self, start: usize, values: &[T]) -> Result<()> {
        assert!(start + values.len() <= self.len, "inside the buffer");
        write_to(&self.device, self.at(start), values)
    }

    /// Copies a range to the host, and waits for it.
    pub fn read(&self, range: Range<usize>) -> Result<Vec<T>> {
        assert!(range.start <= range.end && range.end <= self.len, "inside the buffer");
        let mut values = vec![T::zeroed(); range.len()];
        read_from(&self.device, self.at(range.start), &mut values)?;
        Ok(values)
    }

    /// Elements from `len` on count no longer. Their memory is given back with the rest.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Copies another buffer of the same length, in the order of the stream.
    pub fn copy_from(&mut self, other: &Buffer<T>) -> Result<()> {
        assert_eq!(self.len, other.len, "buffers of one length");
        copy(&self.device, other.address, self.address, self.len * size_of::<T>())
    }

    /// Makes room for `len` elements, keeping the first `kept`. Grows by a quarter more than asked, so that it soon
    /// grows no longer.
    pub fn reserve(&mut self, len: usize, kept: usize) -> Result<()> {
        if len <= self.len {
            return Ok(());
        }
        let larger = Buffer::new(&self.device, len + len / 4 + 256)?;
        if kept > 0 {
            // SAFETY: both have at least `kept` elements.
            unsafe {
                driver::memcpy_dtod_async(
                    larger.address,
                    self.address,
                    kept * size_of::<T>(),
                    self.device.stream(),
                )
            }
            .map_err(|error| fault("move memory of the GPU", error))?;
        }
        *self = larger;
        Ok(())
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.address != 0 {
            self.device.free(Left::OnDevice(self.address));
        }
    }
}

/// Copies on the device, in the order of its stream.
pub(super) fn copy(device: &Device, from: u64, to: u64, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let _current = device.bind()?;
    // SAFETY: the caller owns as many bytes at both addresses.
    unsafe { driver::memcpy_dtod_async(to, from, bytes, device.stream()) }
        .map_err(|error| fault("copy on the GPU", error))
}

/// Copies to the device, and waits.
pub(super) fn write_to<T: Pod>(device: &Device, address: u64, values: &[T]) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    let _current = device.bind()?;
    // SAFETY: the caller owns as many elements at `address`; waiting keeps `values` alive long enough.
    unsafe { driver::memcpy_htod_async(address, values, device.stream()) }
        .map_err(|error| fault("copy to the GPU", error))?;
    device.wait()
}

/// Copies from the device, and waits.
pub(super) fn read_from<T: Pod>(device: &Device, address: u64, values: &mut [T]) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    let _current = device.bind()?;
    // SAFETY: the caller owns as many elements at `address`; waiting keeps `values` alive long enough.
    unsafe { driver::memcpy_dtoh_async(values, address, device.stream()) }
        .map_err(|error| fault("copy from the GPU", error))?;
    device.wait()
}

/// Memory of the host that the GPU copies from and to without a detour, while the host goes on.
#[derive(Debug)]
pub struct Pinned<T> {
    device: Arc<Device>,
    memory: *mut T,
    len: usize,
}

// SAFETY: plain memory, reached through `&self` and `&mut self` as usual.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Pinned<T> {}

impl<T: Pod> Pinned<T> {
    /// No memory yet; [`reserve`](Pinned::reserve) takes some.
    pub fn empty(device: &Arc<Device>) -> Pinned<T> {
        Pinned { device: device.clone(), memory: std::ptr::NonNull::dangling().as_ptr(), len: 0 }
    }

    /// Zeros.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Pinned<T>> {
        if len == 0 {
            return Ok(Pinned::empty(device));
        }
        let _current = device.bind()?;
        let bytes = len * size_of::<T>();
        // SAFETY: plain allocation.
        let memory = unsafe { driver::malloc_host(bytes, 0) };
        let memory = memory.map_err(|error| fault(&format!("take {bytes} bytes of pinned memory"), error))?;
        // SAFETY: as many bytes were taken.
        unsafe { memory.cast::<u8>().write_bytes(0, bytes) };
        Ok(Pinned { device: device.clone(), memory: memory.cast(), len })
    }

    /// What is there. Copies that are under way must have been waited for.
    pub fn slice(&self) -> &[T] {
        // SAFETY: `len` elements were taken and zeroed.
        unsafe { std::slice::from_raw_parts(self.memory, self.len) }
    }

    /// What is there, to be changed.
    pub fn slice_mut(&mut self) -> &mut [T] {
        // SAFETY: `len` elements were taken and zeroed, and `&mut self` is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.len) }
    }

    /// Makes room for `len` elements; what was there is lost, so copies must have been waited for.
    pub fn reserve(&mut self, len: usize) -> Result<()> {
        if len > self.len {
            *self = Pinned::new(&self.device, len + len / 4 + 256)?;
        }
        Ok(())
    }

    /// Begins to copy from the device into `range`; the host must wait before it looks.
    pub fn fetch(&mut self, range: Range<usize>, address: u64) -> Result<()> {
        let _current = self.device.bind()?;
        let (device, into) = (self.device.clone(), &mut self.slice_mut()[range]);
        if into.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller owns as many elements at `address`, and the pinned memory outlives the stream's work:
        // whoever fetches waits.
        unsafe { driver::memcpy_dtoh_async(into, address, device.stream()) }
            .map_err(|error| fault("copy from the GPU", error))
    }

    /// Begins to copy `range` to the device; the host must wait before it changes it.
    pub fn send(&self, range: Range<usize>, address: u64) -> Result<()> {
        let _current = self.device.bind()?;
        let from = &self.slice()[range];
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { driver::memcpy_htod_async(address, from, self.device.stream()) }
            .map_err(|error| fault("copy to the GPU", error))
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        if self.len > 0 {
            self.device.free(Left::OnHost(self.memory as usize));
        }
    }
}

/// The numbers a gradient is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// 32-bit floats.
    F32,
    /// 16-bit IEEE floats.
    F16,
    /// bfloat16.
    Bf16,
}

impl Element {
    /// Bytes of a number.
    pub fn width(self) -> usize {
        if self == Element::F32 { 4 } else { 2 }
    }

    /// The name: f32, f16 or bf16.
    pub fn name(self) -> &'static str {
        match self {
            Element::F32 => "f32",
            Element::F16 => "f16",
            Element::Bf16 => "bf16",
        }
    }

    /// The number of the kernels' switch.
    pub(super) fn number(self) -> u32 {
        self as u32
    }
}

/// A gradient, or weights, in the GPU's memory: borrowed from whoever made it.
#[derive(Debug)]
pub struct Gradient {
    address: u64,
    len: usize,
    element: Element,
    /// With this it is ready; `None`: with what the stream has done before.
    ready: Option<Event>,
}

impl Gradient {
    /// Describes memory of somebody else.
    ///
    /// # Safety
    /// `address` holds `len` such numbers in the memory of the GPU that works on them. From the point `ready` (or of the
    /// engine's stream, without) until the engine hands it back, nobody else touches it.
    pub unsafe fn new(address: u64, len: usize, element: Element, ready: Option<Event>) -> Result<Gradient> {
        if !address.is_multiple_of(element.width() as u64) || (address == 0 && len > 0) {
            return Err(Error::Device {
                action: "use a gradient on the GPU".into(),
                reason: format!("its address {address:#x} is not one of {} numbers", element.name()),
            });
        }
        Ok(Gradient { address, len, element, ready })
    }

    /// A whole buffer, which must stay as long as the gradient is used.
    pub fn of(buffer: &Buffer<f32>) -> Gradient {
        Gradient { address: buffer.address(), len: buffer.len(), element: Element::F32, ready: None }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What it is made of.
    pub fn element(&self) -> Element {
        self.element
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// The address of an element.
    pub(super) fn at(&self, element: usize) -> u64 {
        self.address + (element * self.element.width()) as u64
    }

    pub(super) fn ready(&self) -> Option<&Event> {
        self.ready.as_ref()
    }
}
