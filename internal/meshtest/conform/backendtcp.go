package conform

import "time"

func (b *backend) serveTCP(w *wire, record *seenConn) {
	spec := b.spec
	b.note(func() { record.isBytes = true })
	if spec.Greet != nil {
		w.send(spec.Greet.bytes(), after(patience))
	}
	b.pause(spec.StallMS)
	source := func() {
		w.send(sized(*spec.Source), after(patience))
		w.halfClose()
	}
	if spec.Duplex {
		b.work.Go(source)
	} else if spec.Source != nil {
		source()
	}
	if spec.HalfClose {
		w.halfClose()
	}
	limit := spec.CloseAfter
	if limit == nil {
		limit = spec.ResetAfter
	}
	silent := spec.Sink || spec.Source != nil || spec.HalfClose
	got := 0
	for limit == nil || got < *limit {
		if !w.fill(after(patience)) {
			break
		}
		part := w.takeAll()
		got += len(part)
		b.note(func() { record.bytes = append(record.bytes, part...) })
		if !silent {
			w.send(part, after(patience))
		}
	}
	b.note(func() { record.end = w.endOr("open") })
	if spec.ResetAfter != nil && got >= *limit {
		time.Sleep(50 * time.Millisecond)
		w.closeBy("rst")
	} else if !spec.Duplex { // there the sender ends its direction itself
		w.halfClose()
	}
}

// serveRaw writes the given bytes whatever comes: at once, or after the first byte.
func (b *backend) serveRaw(w *wire, record *seenConn) {
	b.note(func() { record.isBytes = true })
	if b.spec.AfterRead {
		w.fill(after(patience))
	}
	w.send(b.spec.Write.bytes(), after(patience))
	if b.spec.Close != "" && b.spec.Close != "false" {
		time.Sleep(50 * time.Millisecond)
		if b.spec.Close == "rst" {
			w.closeBy("rst")
		} else {
			w.halfClose()
		}
	}
	b.keep(w, record)
}

func (b *backend) serveBlackhole(w *wire, record *seenConn) {
	b.note(func() { record.isBytes = true })
	b.keep(w, record)
}

// keep reads and keeps everything.
func (b *backend) keep(w *wire, record *seenConn) {
	for {
		more := w.fill(after(patience))
		part := w.takeAll()
		b.note(func() { record.bytes = append(record.bytes, part...) })
		if !more {
			return
		}
	}
}
