package translate

import (
	"reflect"
	"sync"

	"sluice/internal/config"
)

// alike finds values that a mesh repeats: its clusters have names of their own
// and settings from a few hands.
type alike struct {
	clusters recent[config.ClusterOptions]
	tls      recent[config.TLSParams]
	peers    recent[config.Validation]
	sockets  recent[config.SocketMatch]
	retries  recent[config.RetryPolicy]
}

// recent holds the values seen last. Who shares a value doesn't change it.
type recent[T any] struct {
	mu     sync.Mutex
	values [16]*T // the newest first
}

// share gives an equal value seen not long ago, or v itself.
func (r *recent[T]) share(v *T) *T {
	if v == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, old := range r.values {
		if old != nil && reflect.DeepEqual(old, v) {
			copy(r.values[1:i+1], r.values[:i])
			r.values[0] = old
			return old
		}
	}
	copy(r.values[1:], r.values[:len(r.values)-1])
	r.values[0] = v
	return v
}
