"""The console of tenants: pages and their forms, navigation, search and first steps.

The console may import from every app. Only the URL configuration imports from the console.
"""
