// Package httpmsg is what the HTTP/1 and HTTP/2 engines share with each other
// and with the code that uses them: a message head without allocations, and the
// contract of an exchange. It does no I/O and knows no wire format.
//
// An engine is a state machine: the driver (a worker's connection, or a test)
// feeds it bytes, it calls a Receiver for what they mean, and it writes bounded
// bytes to its Conn. All of one connection happens on one goroutine; nothing
// here is safe for concurrent use.
package httpmsg

// Conn is an engine's side of the byte stream below it. internal/worker.Conn is
// one, a test's buffer another.
type Conn interface {
	// Grab gives the output buffer to append to, and Put stores it back longer;
	// it is flushed at the end of the turn. Nothing may happen between the two.
	Grab() []byte
	Put(b []byte)
	// Pending is how many output bytes the kernel has not taken yet.
	Pending() int
	// PauseRead stops Feed calls until ResumeRead. Bytes that Feed left
	// unconsumed are kept, and fed again after ResumeRead, later in the turn.
	PauseRead()
	ResumeRead()
	// CloseWhenFlushed sends what is pending, then FIN, and closes.
	CloseWhenFlushed()
	// Abort closes at once with RST.
	Abort()
}

// Stream is one request and its response, as seen by the code that sends on it:
// the server's side sends the response, the client's side the request.
//
// After SendData or SendTrailers with the end of the message, or Reset, nothing
// more may be sent. An engine accepts every byte it is given; the sender keeps
// memory bounded by pausing its own source while Buffered is high, until
// Receiver.OnDrain.
type Stream interface {
	// SendHead sends a message head. A 1xx status (other than 101) on a server
	// stream is an informational response and may be followed by more heads.
	SendHead(h *Head, end bool)
	SendData(p []byte, end bool)
	// SendTrailers ends the message. An engine that can't send trailers ends it
	// without them.
	SendTrailers(t *Head)
	// Reset gives the exchange up: HTTP/2 sends RST_STREAM, HTTP/1 closes the
	// connection. The Receiver is not told.
	Reset(r ResetReason)
	// Pause stops OnData (flow control tells the peer) until Resume. Data on
	// its way, at most a read or a stream window, may still arrive.
	Pause()
	Resume()
	// Buffered is the number of bytes accepted and not yet given to the kernel.
	Buffered() int
	// Detach is for upgrades and CONNECT on HTTP/1: after a 101 (or 2xx to
	// CONNECT) both directions are raw bytes through SendData and OnData.
	Detach()
	// HTTP2 says which engine this is; ID is a number for logs.
	HTTP2() bool
	ID() uint64
}

// Receiver is told what arrives on a Stream. Heads and data are valid only
// during the call.
type Receiver interface {
	// OnHead is a final or an informational head; end means that no data follows.
	OnHead(h *Head, end bool)
	OnData(p []byte, end bool)
	// OnTrailers ends the message.
	OnTrailers(t *Head)
	// OnReset ends the exchange: peer reset, connection loss, protocol error, or
	// refused. It is the last call. On a server stream with a Status, a response
	// may still be sent.
	//
	// After a server has sent a whole response to an unfinished request, the
	// exchange is over and nothing more is called. A client whose response ended
	// before its request may still be told of a reset, until the request ends.
	OnReset(r ResetReason)
	// OnDrain says that Buffered fell to LowWater, or below, after it was above
	// HighWater.
	OnDrain()
}

// The water marks of a Stream's buffered output, in bytes.
const (
	HighWater = 16 << 10
	LowWater  = 4 << 10
)

// ResetKind says why an exchange ended early.
type ResetKind uint8

// The kinds of reset. The comments give Envoy's words for them in
// upstream_reset_before_response_started{...}.
const (
	ResetNone           ResetKind = iota
	ResetRemote                   // remote_reset: RST_STREAM from the peer
	ResetRefused                  // remote_refused_stream_reset: REFUSED_STREAM, or beyond GOAWAY's last id
	ResetConnectError             // remote_connection_failure / local: connection never came up
	ResetConnTerminated           // connection_termination: connection closed with the exchange open
	ResetProtocolError            // protocol_error: the peer broke the protocol
	ResetLocal                    // local_reset
	ResetOverflow                 // overflow
	ResetTimeout                  // connection_timeout
	ResetFlood                    // a limit on the peer's behaviour was exceeded
	ResetHeaderLimit              // header size or count over the limit
)

// ResetReason is a ResetKind with what is known about it.
type ResetReason struct {
	Kind   ResetKind
	Code   uint32 // HTTP/2 error code, sent or received
	Status int    // protocol error on a server stream: the status Envoy answers with
	Detail string // Envoy's response code detail, e.g. "http1.codec_error"
	// BeforeHead: no byte of the response had arrived (client side).
	BeforeHead bool
}

// ServerHandler is told of each new request on a server connection.
type ServerHandler interface {
	// OnStream returns who receives the request's head, which follows at once.
	OnStream(s Stream) Receiver
	// OnGone says that the connection takes no further requests.
	OnGone()
}
