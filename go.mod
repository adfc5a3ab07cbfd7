module github.com/fleetlimit/fleetlimit

go 1.26.0
