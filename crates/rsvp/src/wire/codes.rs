//! Error codes and values of ERROR_SPEC (RFC 2205 B).

/// Codes.
pub mod code {
    /// No error: a confirmation.
    pub const CONFIRMATION: u8 = 0;
    /// Admission control refuses the reservation.
    pub const ADMISSION: u8 = 1;
    /// Policy control refuses.
    pub const POLICY: u8 = 2;
    /// No path state for the session.
    pub const NO_PATH: u8 = 3;
    /// No path state for the sender.
    pub const NO_SENDER: u8 = 4;
    /// The style differs from that of the session's reservations. The value is the low 16 bits of
    /// the option vector that is installed.
    pub const STYLE_CONFLICT: u8 = 5;
    /// The style is not known here.
    pub const UNKNOWN_STYLE: u8 = 6;
    /// One session of an address and protocol has destination port 0, another one has not.
    pub const DESTINATION_PORTS: u8 = 7;
    /// One sender of an address has port 0, another one has not.
    pub const SENDER_PORTS: u8 = 8;
    /// A reservation was taken away for a more important one.
    pub const PREEMPTED: u8 = 12;
    /// An object of an unknown class; the value is class and C-type.
    pub const UNKNOWN_CLASS: u8 = 13;
    /// An object of an unknown C-type; the value is class and C-type.
    pub const UNKNOWN_TYPE: u8 = 14;
    /// Traffic control.
    pub const TRAFFIC_CONTROL: u8 = 21;
    /// Traffic control failed by itself.
    pub const TRAFFIC_CONTROL_SYSTEM: u8 = 22;
    /// The RSVP node failed by itself, or is full.
    pub const SYSTEM: u8 = 23;
}

/// Values of code 1 with sub-code bits 00, which are those that RFC 2205 B defines.
pub mod admission {
    /// The delay bound cannot be met.
    pub const DELAY: u16 = 1;
    /// The bandwidth is not there.
    pub const BANDWIDTH: u16 = 2;
    /// The flowspec's largest packet does not fit the link.
    pub const MTU: u16 = 3;
}

/// Values of code 21.
pub mod traffic {
    /// Services that cannot be merged.
    pub const CONFLICT: u16 = 1;
    /// The service is not offered.
    pub const UNSUPPORTED: u16 = 2;
    /// A flowspec with values that it may not have.
    pub const BAD_FLOWSPEC: u16 = 3;
    /// A Tspec with values that it may not have.
    pub const BAD_TSPEC: u16 = 4;
    /// An Adspec with values that it may not have.
    pub const BAD_ADSPEC: u16 = 5;
}

/// The name of an error, for messages and logs.
pub fn name(code: u8, value: u16) -> &'static str {
    match (code, value) {
        (code::CONFIRMATION, _) => "confirmed",
        (code::ADMISSION, admission::DELAY) => "admission: the delay bound cannot be met",
        (code::ADMISSION, admission::BANDWIDTH) => "admission: the bandwidth is not there",
        (code::ADMISSION, admission::MTU) => "admission: the largest packet does not fit a link",
        (code::ADMISSION, _) => "admission",
        (code::POLICY, _) => "policy",
        (code::NO_PATH, _) => "no path state for the session",
        (code::NO_SENDER, _) => "no path state for the sender",
        (code::STYLE_CONFLICT, _) => "another style is in place",
        (code::UNKNOWN_STYLE, _) => "the style is not offered",
        (code::DESTINATION_PORTS, _) => "destination port 0 beside another port",
        (code::SENDER_PORTS, _) => "source port 0 beside another port",
        (code::PREEMPTED, _) => "preempted",
        (code::UNKNOWN_CLASS, _) => "unknown object class",
        (code::UNKNOWN_TYPE, _) => "unknown object C-type",
        (code::TRAFFIC_CONTROL, traffic::CONFLICT) => "traffic control: services conflict",
        (code::TRAFFIC_CONTROL, traffic::UNSUPPORTED) => "traffic control: the service is not offered",
        (code::TRAFFIC_CONTROL, traffic::BAD_FLOWSPEC) => "traffic control: bad flowspec",
        (code::TRAFFIC_CONTROL, traffic::BAD_TSPEC) => "traffic control: bad Tspec",
        (code::TRAFFIC_CONTROL, traffic::BAD_ADSPEC) => "traffic control: bad Adspec",
        (code::TRAFFIC_CONTROL, _) => "traffic control",
        (code::TRAFFIC_CONTROL_SYSTEM, _) => "traffic control failed",
        (code::SYSTEM, _) => "the node failed, or is full",
        _ => "another error",
    }
}
