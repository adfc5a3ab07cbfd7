package exactlog

// Held returns how many distinct times the log has room for.
func (l *Log) Held() int { return cap(l.events) }
