module github.com/fleetlimit/fleetlimit/bench

go 1.26.0

require (
	github.com/fleetlimit/fleetlimit v0.0.0
	github.com/puzpuzpuz/xsync/v4 v4.5.0
	github.com/sethvargo/go-limiter v0.7.1
	golang.org/x/sys v0.50.0
	golang.org/x/time v0.16.0
)

require github.com/maypok86/otter/v2 v2.4.0 // indirect

replace github.com/fleetlimit/fleetlimit => ../
