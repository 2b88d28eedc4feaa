package httpproxy

// A response is bulk when a read brought that much of it and that much is still
// to come, in bytes: then it costs less to have the kernel move it.
const (
	bulkRead = 32 << 10
	bulkLeft = 128 << 10
)

// bulk lets the rest of an HTTP/1 response with a length bypass user space,
// where no filter looks at it and both sides are plaintext.
func (t *attempt) bulk() {
	r := t.r
	if r.over || t.stream == nil || t.conn == nil || r.conn.h1 == nil || r.chain.bodies || r.tunnel {
		return
	}
	n := t.conn.Bulk()
	if n < bulkLeft || n != r.conn.h1.Bulk() {
		return
	}
	if t.spliced == nil {
		t.spliced = t.onSpliced
	}
	t.conn.Wire().SpliceN(r.conn.wire, n, t.spliced)
}

// onSpliced is told of content that went to the client.
func (t *attempt) onSpliced(n int) {
	r := t.r
	if r.over || t.conn == nil || r.conn.h1 == nil {
		return
	}
	r.touch()
	r.rec.BytesOut += uint64(n)
	r.conn.h1.Skip(uint64(n))
	t.conn.Skip(n) // the last part ends the request
	if !r.over && r.plan.tryIdle() > 0 {
		r.awaitTry()
	}
}
