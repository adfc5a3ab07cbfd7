package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgress_IsShownFromTimeToTimeAndCleared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := &progress{w: &b}
		for lines := range int64(5) {
			p.update(1000*lines, at(lines))
			time.Sleep(progressEvery / 2)
		}
		p.done()
		const clear = "\r\x1b[K"
		want := clear + "0 lines replayed, at 2015-05-17 10:05:00 UTC" +
			clear + "2,000 lines replayed, at 2015-05-17 10:05:02 UTC" +
			clear + "4,000 lines replayed, at 2015-05-17 10:05:04 UTC" + clear
		if got := b.String(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

func TestProgress_IsSilentUnlessOnATerminal(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := newProgress(file)
	p.update(1, at(0))
	p.done()
	if info, err := file.Stat(); err != nil || info.Size() > 0 {
		t.Errorf("%d bytes in the file, error %v", info.Size(), err)
	}
}
