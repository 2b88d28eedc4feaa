package downstream

// Admission is a network filter's word on a new connection.
type Admission uint8

// The admissions.
const (
	Pass   Admission = iota // go on with the next filter
	Refuse                  // close; the filter has set Connection.Termination
	Parked                  // the filter calls next, or closes, later on the worker
)

// Filter is a network filter: it decides about a connection before the chain's
// terminal, and any upstream socket, sees it. Admit runs on the connection's
// worker. A filter that needs bytes first sets itself as Conn's handler, returns
// Parked, and calls next from OnData after consuming its own bytes. A closed
// connection needs no next, but Gone.
type Filter interface {
	Admit(c *Connection, next func()) Admission
}
