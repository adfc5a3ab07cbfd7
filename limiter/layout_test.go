package limiter

import (
	"testing"
	"unsafe"
)

// A decision touches two cache lines of an entry, if they are where they should be.
func TestEntryIsTwoCacheLines(t *testing.T) {
	t.Parallel()
	const line = 64
	var e Entry
	if size, written := unsafe.Sizeof(e), unsafe.Offsetof(e.views); size != 2*line || written != line {
		t.Errorf("an entry has %d bytes, what decisions write begins at %d, want %d and %d", size, written, 2*line, line)
	}
	entries := make([]*Entry, 100)
	for i := range entries {
		entries[i] = &Entry{}
		if at := uintptr(unsafe.Pointer(entries[i])); at%line != 0 {
			t.Fatalf("an entry begins at %#x, want the beginning of a line", at)
		}
	}
}
