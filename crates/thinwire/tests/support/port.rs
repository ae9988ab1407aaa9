//! A port for a test.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// A port nobody uses. Below the range from which the system gives them out, so that none of the many connections
/// of other tests takes it in the meantime.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) as u32 + std::process::id() * 331;
        let port = 10_000 + (number % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
