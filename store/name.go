package store

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// maxLiteralKey is the length in bytes up to which a key is part of its
// counters' names as it is.
const maxLiteralKey = 256

// digestSize is the length in bytes of the digest that stands for a longer key.
const digestSize = 16

// AppendName appends the name of counter c to dst and returns the result. The
// name is prefix, key and epoch, joined by ':', as in
//
//	fleetlimit/api/1m0s:team_42:29733333
//
// with a letter after the epoch for a series other than
// [limiter.SeriesAdmitted]: 'd' for denied, 'n' for nodes. A key of more than
// 256 bytes is replaced by the first 128 bits of its SHA-256 in hex, and an 'h'
// at the end says so.
//
// Distinct (prefix, counter) have distinct names (rule S10), as far as SHA-256
// keeps keys apart, if prefix holds no ':'. The prefix then ends at the first ':'
// and the epoch begins after the last one, so that the key between them may hold
// anything; and no short key can pass for a digest, because the mark of the
// digest is not part of the key.
func AppendName(dst []byte, prefix string, c limiter.Counter) []byte {
	dst = append(dst, prefix...)
	dst = append(dst, ':')
	digested := len(c.Key) > maxLiteralKey
	if digested {
		sum := sha256.Sum256([]byte(c.Key))
		dst = hex.AppendEncode(dst, sum[:digestSize])
	} else {
		dst = append(dst, c.Key...)
	}
	dst = append(dst, ':')
	dst = strconv.AppendInt(dst, c.Epoch, 10)
	switch c.Series {
	case limiter.SeriesAdmitted:
	case limiter.SeriesDenied:
		dst = append(dst, 'd')
	case limiter.SeriesNodes:
		dst = append(dst, 'n')
	default:
		dst = append(dst, 's')
		dst = strconv.AppendUint(dst, uint64(c.Series), 10)
	}
	if digested {
		dst = append(dst, 'h')
	}
	return dst
}
