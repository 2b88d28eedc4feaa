package h2

import (
	"encoding/binary"

	"sluice/internal/httpmsg"
)

func (e *engine) settings(flags byte, id uint32, p []byte) *fault {
	if id != 0 {
		return faultStreamID
	}
	if flags&flagAck != 0 {
		if len(p) != 0 {
			return faultFrameSize
		}
		e.acked = true
		return nil
	}
	if len(p)%6 != 0 {
		return faultFrameSize
	}
	window := e.peerInit
	for ; len(p) > 0; p = p[6:] {
		k, v := binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:])
		if f := e.setting(k, v); f != nil {
			return f
		}
		if k == settingWindow {
			window = int32(v)
		}
	}
	// Only the last of a frame's windows can be used, and each costs a walk over
	// all streams.
	if window != e.peerInit {
		delta := int64(window) - int64(e.peerInit)
		e.peerInit = window
		if e.moveWindows(delta); e.dead {
			return nil
		}
	}
	e.put(appendFrame(e.io.Grab(), frameSettings, flagAck, 0, 0), frameHead, true)
	return e.outboundFault()
}

func (e *engine) setting(id uint16, v uint32) *fault {
	switch id {
	case settingTableSize:
		e.enc.SetMax(v, 4096)
	case settingPush:
		if v > 1 || e.client && v != 0 {
			return faultSettings
		}
	case settingMaxStreams:
		e.maxOpen = v
	case settingWindow:
		if v > maxWindow {
			return faultSettings
		}
	case settingMaxFrame:
		if v < 16384 || v > 1<<24-1 {
			return faultSettings
		}
		e.maxFrame = int32(min(v, 64<<10))
	case settingConnectProt:
		if v > 1 {
			return faultSettings
		}
		e.extended = v == 1
	}
	return nil
}

// moveWindows applies a change of the initial window to open streams (RFC 9113
// section 6.9.2); a stream that overflows is reset, as Envoy does. Receivers are
// told only after the walk, since they may open streams.
func (e *engine) moveWindows(delta int64) {
	over := 0
	for _, st := range e.table {
		for ; st != nil; st = st.next {
			w := int64(st.sendWin) + delta
			if w > maxWindow {
				st.overflow = true
				over++
				continue
			}
			if st.sendWin = int32(w); st.sendWin > 0 && st.queued() {
				e.enqueue(st)
			}
		}
	}
	for ; over > 0 && !e.dead; over-- {
		if st := e.overflowed(); st != nil {
			e.abort(st, CodeFlowControl, httpmsg.ResetReason{Kind: httpmsg.ResetProtocolError, Detail: detailReset})
		}
	}
	e.pump()
}

func (e *engine) overflowed() *stream {
	for _, st := range e.table {
		for ; st != nil; st = st.next {
			if st.overflow {
				return st
			}
		}
	}
	return nil
}

func (e *engine) windowUpdate(id uint32, p []byte) *fault {
	if len(p) != 4 {
		return faultFrameSize
	}
	limit := 5 + 2*(e.in.opened+uint64(e.opts.MaxWindowUpdatePerData)*e.out.data)
	if e.in.updates++; e.in.updates > limit {
		e.opts.Counters.InboundWindowUpdateFramesFlood++
		return faultUpdates
	}
	n := int32(binary.BigEndian.Uint32(p) & maxWindow)
	if n == 0 {
		return faultWindow
	}
	if id == 0 {
		if int64(e.sendWin)+int64(n) > maxWindow {
			return faultWindow
		}
		e.sendWin += n
		e.pump()
		return nil
	}
	if e.idle(id) {
		return faultStreamID
	}
	st := e.find(id)
	if st == nil {
		return nil
	}
	if int64(st.sendWin)+int64(n) > maxWindow {
		return faultWindow
	}
	if st.sendWin += n; st.sendWin > 0 && st.queued() {
		e.enqueue(st)
		e.pump()
	}
	return nil
}
