package conform

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	host       = "127.0.0.1"
	firstBlock = 10000 // ports always have five digits, so that lengths do not differ,
	lastBlock  = 32000 // and stand below the ephemeral range
	blockSize  = 40
)

// portBlock is a block of ports that no other run on this machine uses while it
// is held.
type portBlock struct {
	lock *os.File
	free []int
}

// takeBlock locks a free block.
func takeBlock() (*portBlock, error) {
	folder := filepath.Join(os.TempDir(), "conform-ports")
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	for _, i := range rand.Perm((lastBlock - firstBlock) / blockSize) {
		base := firstBlock + i*blockSize
		f, err := os.OpenFile(filepath.Join(folder, fmt.Sprint(base)), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			return nil, err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			_ = f.Close()
			continue
		}
		b := &portBlock{lock: f}
		for port := base; port < base+blockSize; port++ {
			if unused(port) {
				b.free = append(b.free, port)
			}
		}
		return b, nil
	}
	return nil, fmt.Errorf("taking ports: no free block below %d", lastBlock)
}

// take is the next free port of the block.
func (b *portBlock) take() (int, error) {
	if len(b.free) == 0 {
		return 0, fmt.Errorf("taking ports: a case needs more than the %d of a block", blockSize)
	}
	port := b.free[0]
	b.free = b.free[1:]
	return port, nil
}

func (b *portBlock) release() { _ = b.lock.Close() }

func unused(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// listening says whether something listens on the port, without connecting.
func listening(port int) bool {
	want := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		found := false
		for s := bufio.NewScanner(f); !found && s.Scan(); {
			cols := strings.Fields(s.Text())
			found = len(cols) > 3 && cols[3] == "0A" && strings.HasSuffix(cols[1], want)
		}
		_ = f.Close()
		if found {
			return true
		}
	}
	return false
}
